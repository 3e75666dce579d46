"""Loaded batches hold exactly the records that draw_batches draws: whatever the physical size, the workers and the source."""

import multiprocessing
from typing import Any

import pytest
import torch
from data_cases import Listed, by_step, listed, make_run, numbered, oracle, runs, seeded
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.data import BatchStream, LoadedBatch, MapStyleSource


def stream(run: Run, seed: int = 0, data: Any = None, **changes: Any) -> BatchStream:
    return BatchStream(run, numbered(run.records) if data is None else data, seeded(seed), **changes)


@pytest.mark.slow
@given(run=runs(), physical=st.none() | st.integers(1, 30), seed=st.integers(0, 99))
def test_the_records_of_every_step_are_those_of_draw_batches(run: Run, physical: int | None, seed: int) -> None:
    batches = list(stream(run, seed, physical_size=physical))
    wanted = oracle(run, seed)
    steps = by_step(batches)
    assert [steps[step] for step in range(1, run.total_steps + 1)] == wanted
    for batch in batches:
        assert listed(batch.whole) == wanted[batch.step - 1]
        assert len(batch.tensors[0]) == (len(listed(batch.indices)) if physical is None else physical)
    lasts = [batch.step for batch in batches if batch.last]
    assert lasts == list(range(1, run.total_steps + 1))
    assert [batch.step for batch in batches] == sorted(batch.step for batch in batches)


@pytest.mark.slow
@given(run=runs(), physical=st.integers(1, 9), seed=st.integers(0, 99))
def test_masks_padding_and_the_number_of_micro_batches(run: Run, physical: int, seed: int) -> None:
    features, _ = numbered(run.records)
    found: dict[int, int] = {}
    for batch in stream(run, seed, physical_size=physical):
        found[batch.step] = found.get(batch.step, 0) + 1
        rows = listed(batch.indices)
        assert batch.tensors[0].shape == (physical, 2)
        assert batch.tensors[1].shape == (physical,)
        assert batch.counted is not None
        assert batch.counted.dtype == torch.bool
        assert batch.counted.tolist() == [True] * len(rows) + [False] * (physical - len(rows))
        assert torch.equal(batch.tensors[0][: len(rows)], torch.from_numpy(features[rows]))
        assert not batch.tensors[0][len(rows) :].any()  # padding is zeros, never a record
        assert not batch.tensors[1][len(rows) :].any()
    for step, drawn in enumerate(oracle(run, seed), start=1):
        assert found[step] == max(1, -(-len(drawn) // physical))


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
    source = MapStyleSource(Listed(12), workers=1)
    assert by_step(stream(run, data=source, physical_size=3)) == dict(enumerate(oracle(run), start=1))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.slow
def test_worker_processes_end_with_an_early_stop_and_pass_on_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.fingerprint._SAMPLES", 8)  # record 8 is none of them
    before = set(multiprocessing.active_children())
    run = make_run("cyclic", records=12, size=3)
    batches = stream(run, data=MapStyleSource(Listed(12, fails_at=8), workers=1))
    got: list[LoadedBatch] = []
    with pytest.raises(OSError, match="record 8 cannot be read"):
        got.extend(batches)
    assert [batch.step for batch in got] == [1, 2]
    for batch in stream(run, data=MapStyleSource(Listed(12), workers=1)):
        if batch.step == 2:
            break
    assert set(multiprocessing.active_children()) <= before


def test_an_error_of_the_source_comes_in_its_place_and_the_rest_can_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.fingerprint._SAMPLES", 8)
    run = make_run("cyclic", records=12, size=3, passes=1)
    dataset = Listed(12, fails_at=8)  # not one of the records that a stream looks at when it is made
    batches = stream(run, data=dataset)
    got: list[LoadedBatch] = []
    with pytest.raises(OSError, match="record 8"):
        got.extend(batches)
    assert batches.steps_done == 2
    dataset.fails_at = None
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


def test_two_iterations_at_once_are_refused_until_one_is_closed() -> None:
    batches = stream(make_run("poisson"))
    first = iter(batches)
    next(first)
    for forbidden in (lambda: iter(batches), lambda: batches.load_state_dict({})):
        with pytest.raises(InputError, match="close"):
            forbidden()
    batches.close()
    assert next(iter(batches)).step == 2
    batches.close()
    batches.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"physical_size": 0},
        {"physical_size": True},
        {"physical_size": 2.0},
        {"physical_size": float("nan")},
        {"rank": 1},
        {"rank": -1, "world_size": 2},
        {"world_size": 0},
        {"world_size": torch.tensor(2)},
        {"data": numbered(22)},
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        stream(make_run("poisson"), **changes)


def test_a_run_and_a_source_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="run:"):
        BatchStream({"records": 3}, numbered(3))  # type: ignore[arg-type]

    class Lying:
        def __len__(self) -> int:
            return 23

        def fetch(self, batch: Any) -> Any:
            return (torch.zeros(2, 2),)

    with pytest.raises(InputError, match="1 rows, one for each record"):
        BatchStream(make_run(), Lying())
