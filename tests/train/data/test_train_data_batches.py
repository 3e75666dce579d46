"""Loaded batches hold the records that draw_batches draws: whatever the physical size, the workers, the source and the processes."""

import multiprocessing
from itertools import chain
from typing import Any

import pytest
import torch
from data_cases import Listed, by_step, listed, make_run, numbered, oracle, runs, seeded
from helpers import DESIGNS
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.map_style import MapStyleSource


def stream(run: Run, seed: int = 0, data: Any = None, **changes: Any) -> BatchStream:
    return BatchStream(run, numbered(run.records) if data is None else data, seeded(seed), **changes)


@pytest.mark.slow
@given(run=runs(), physical=st.none() | st.integers(1, 30), seed=st.integers(0, 99))
def test_the_records_of_every_step_are_those_of_draw_batches(run: Run, physical: int | None, seed: int) -> None:
    batches, wanted, (features, _) = list(stream(run, seed, physical_size=physical)), oracle(run, seed), numbered(run.records)
    assert by_step(batches) == dict(enumerate(wanted, start=1))
    assert [batch.step for batch in batches if batch.last] == list(range(1, run.total_steps + 1))
    micro = [1 if physical is None else max(1, -(-len(drawn) // physical)) for drawn in wanted]
    assert [batch.step for batch in batches] == [step for step, count in enumerate(micro, start=1) for _ in range(count)]
    for batch in batches:
        assert listed(batch.whole) == wanted[batch.step - 1]
        rows = listed(batch.indices)
        size = len(rows) if physical is None else physical
        assert (batch.tensors[0].shape, batch.tensors[1].shape) == ((size, 2), (size,))
        assert torch.equal(batch.tensors[0][: len(rows)], torch.from_numpy(features[rows]))
        assert not any(bool(tensor[len(rows) :].any()) for tensor in batch.tensors)  # padding is zeros, never a record
        assert (batch.counted is None) == (physical is None)
        assert batch.counted is None or batch.counted.tolist() == [place < len(rows) for place in range(size)]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("physical", [None, 4])
def test_empty_draws_give_padding_only_and_never_reach_the_source(physical: int | None) -> None:
    run = make_run("poisson", records=6, size=1, steps=60)
    for data in (numbered(6), Listed(6), MapStyleSource(Listed(6))):
        batches = list(stream(run, data=data, physical_size=physical))
        empty = [batch for batch in batches if not len(listed(batch.indices))]
        assert len(empty) > 5
        for batch in empty:
            assert batch.last
            assert batch.tensors[0].shape == (physical or 0, 2)
            assert batch.tensors[1].dtype == torch.int64
            assert batch.counted is None if physical is None else not batch.counted.any()
    assert by_step(batches) == dict(enumerate(oracle(run), start=1))


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


@pytest.mark.nightly(by_day="test_resuming_after_every_step")
@pytest.mark.slow
@given(run=runs(), physical=st.none() | st.integers(1, 4), stops=st.lists(st.integers(1, 6), max_size=5), seed=st.integers(0, 9))
def test_iteration_goes_on_where_it_stopped(run: Run, physical: int | None, stops: list[int], seed: int) -> None:
    batches, got = stream(run, seed, physical_size=physical), []
    for stop in stops:
        for count, batch in enumerate(batches, start=1):
            got.append(batch)
            if count == stop:
                break
    got.extend(batches)
    uncut = list(stream(run, seed, physical_size=physical))
    assert [(batch.step, listed(batch.indices), batch.last) for batch in got] == [
        (batch.step, listed(batch.indices), batch.last) for batch in uncut
    ]
    assert list(batches) == []


def test_a_new_iteration_ends_the_one_before() -> None:
    batches = stream(make_run("poisson"))
    first = iter(batches)
    next(first)
    assert next(iter(batches)).step == 2
    assert list(first) == []
    batches.close()
    batches.close()


class Lying:
    def __len__(self) -> int:
        return 23

    def fetch(self, batch: Any) -> Any:
        return (torch.zeros(2, 2),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"physical_size": 0}, "physical_size = 0"),
        ({"physical_size": True}, "physical_size = True"),
        ({"physical_size": 2.0}, "physical_size = 2.0"),
        ({"data": numbered(22)}, "the run says 23; the data have 22"),
        ({"data": Lying()}, "1 rows, one for each record"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        stream(make_run("poisson"), **changes)
    with pytest.raises(InputError, match="run:"):
        BatchStream({"records": 3}, numbered(3))  # type: ignore[arg-type]


@pytest.mark.slow
@given(run=runs(), world=st.integers(1, 4), physical=st.none() | st.integers(1, 4), seed=st.integers(0, 99))
def test_the_processes_together_load_every_record_once(run: Run, world: int, physical: int | None, seed: int) -> None:
    ranks = [list(stream(run, seed, physical_size=physical, rank=rank, world_size=world)) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1
    for together in zip(*ranks, strict=True):
        assert len({(batch.step, batch.last, tuple(listed(batch.whole))) for batch in together}) == 1
    for step, drawn in enumerate(oracle(run, seed), start=1):
        shares = [by_step(batches)[step] for batches in ranks]
        assert list(chain.from_iterable(shares)) == drawn
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.nightly(by_day="test_resuming_after_every_step")
@pytest.mark.slow
@given(design=st.sampled_from(DESIGNS), before=st.integers(0, 5), skipped=st.integers(0, 6))
def test_after_skipped_steps_follows_what_would_have_followed(design: str, before: int, skipped: int) -> None:
    run = make_run(design, steps=11)
    uncut, batches = oracle(run), stream(run)
    for _ in zip(range(before), batches, strict=False):
        pass
    assert [listed(batch) for batch in batches.skip(skipped)] == uncut[before : before + skipped]
    assert batches.steps_done == before + skipped
    again = stream(run, seed=99)
    again.load_state_dict(batches.state_dict())
    for one in (batches, again):
        assert [listed(batch.whole) for batch in one] == uncut[before + skipped :]
    for steps in (-1, True, 12):
        with pytest.raises(InputError, match=f"steps = {steps}"):
            stream(run).skip(steps)
