"""Data that worker processes read: the same batches, and the same refusals."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
import torch
from data_cases import Listed, by_step, make_run, numbered, oracle, seeded

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.map_style import MapStyleSource
from lethe.train.data.sources import fetched


def stream(run: Run, seed: int = 0, data: Any = None, **changes: Any) -> BatchStream:
    return BatchStream(run, numbered(run.records) if data is None else data, seeded(seed), **changes)


@pytest.mark.slow
def test_worker_processes_give_the_same_batches() -> None:
    run = make_run("poisson", records=12, size=2, steps=25)
    before = torch.random.get_rng_state()
    source = MapStyleSource(Listed(12), num_workers=1)
    assert by_step(stream(run, data=source, physical_size=3)) == dict(enumerate(oracle(run), start=1))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_source_comes_in_its_place_and_the_rest_can_follow(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.sources._SAMPLES", 8)  # record 8 is none of them
    before = set(multiprocessing.active_children())
    run, dataset, got = make_run("cyclic", records=12, size=3, passes=1), Listed(12, fails_at=8), list[LoadedBatch]()
    batches = stream(run, data=MapStyleSource(dataset, num_workers=workers))
    with pytest.raises(OSError, match="record 8 cannot be read"):
        got.extend(batches)
    assert batches.steps_done == 2
    dataset.fails_at = None
    for batch in batches:
        got.append(batch)
        break
    batches.close()
    assert set(multiprocessing.active_children()) <= before
    got.extend(batches)
    assert by_step(got) == dict(enumerate(oracle(run), start=1))


class Dropping(Listed):
    """Reads several records at once, and leaves out those it does not like."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices if index != 4]


@pytest.mark.slow
def test_a_data_set_that_drops_records_is_refused_in_worker_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.sources._SAMPLES", 8)  # of 10 records
    source = MapStyleSource(Dropping(10), num_workers=1)
    for rows in (slice(3, 6), slice(4, 5)):
        with pytest.raises(InputError, match=r"3 rows, one for each record|of 0 records it makes no batch"):
            fetched(source, rows)
    with pytest.raises(InputError, match="5 rows, one for each record"):
        list(BatchStream(make_run("cyclic", 10, 5, passes=1), source))
