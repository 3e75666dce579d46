"""Loaded batches hold the records that draw_batches draws, whatever the physical size and the processes; cut at every step they go on."""

import io
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import VARIABLE, Listed, by_step, listed, make_run, numbered, oracle, runs, seeded
from helpers import DESIGNS
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.data.batches import BatchStream
from lethe.train.data.map_style import MapStyleSource


def stream(run: Run, seed: int = 0, data: Any = None, **changes: Any) -> BatchStream:
    return BatchStream(run, numbered(run.records) if data is None else data, seeded(seed), **changes)


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


def steps_of(stream: BatchStream) -> list[tuple[int, list[int]]]:
    return [(batch.step, listed(batch.whole)) for batch in stream if batch.last]


def cut_after(stream: BatchStream, step: int) -> dict[str, Any]:
    """The state after a step, through a file as a checkpoint would keep it."""
    if step:
        for batch in stream:
            if batch.last and batch.step == step:
                break
        stream.close()
    file = io.BytesIO()
    torch.save(stream.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("cap", [None, 4])
@pytest.mark.parametrize("design", DESIGNS)
def test_resuming_after_every_step(design: str, cap: int | None) -> None:
    run = make_run(design, cap=cap if design in VARIABLE else None, steps=11)
    data = numbered(run.records)
    uncut = steps_of(BatchStream(run, data, seeded(5)))
    assert len(uncut) == 11
    for step in range(12):
        state = cut_after(BatchStream(run, data, seeded(5), physical_size=2), step)
        if design in ("shuffled", "random_allocation", "poisson", "without_replacement"):
            assert 0 <= step - state["anchor_step"] <= run.steps_per_pass  # a pass at most is drawn again
        again = BatchStream(run, data, seeded(99), physical_size=3)
        again.load_state_dict(state)
        assert again.steps_done == step
        assert steps_of(again) == uncut[step:]


def test_a_state_is_of_whole_steps_and_says_nothing_of_the_contents() -> None:
    stream = BatchStream(make_run("cyclic"), numbered(23), physical_size=2)
    for number, batch in enumerate(stream):
        assert batch.last == (number == 2)
        if batch.last:
            break
        with pytest.raises(InputError, match="step 1 is half delivered"):
            stream.state_dict()
    first, second = stream.state_dict(), BatchStream(make_run("cyclic"), numbered(23), seeded(2)).state_dict()
    assert first["steps_done"] == 1
    assert first["source"]["key"] != second["source"]["key"]
    for name in ("samples", "whole"):
        assert len(first["source"][name]) == len(second["source"][name]) == 2
        assert not {*first["source"][name]} & {*second["source"][name]}


FEATURES, TARGETS = numbered(23)
ROUNDED, BETWEEN = FEATURES.copy(), FEATURES.copy()
ROUNDED[22, 1] += 1e-12 * ROUNDED[22, 1]
BETWEEN[7, 0] = np.nextafter(BETWEEN[7, 0], 1e9)
OTHERS: dict[str, tuple[Any, str]] = {
    "one record": ((ROUNDED, TARGETS), "some records differ"),
    "a record that is not sampled": ((BETWEEN, TARGETS), "some records differ"),
    "two targets exchanged": ((FEATURES, TARGETS[[*range(5), 6, 5, *range(7, 23)]]), "some records differ"),
    "order": ((FEATURES[::-1].copy(), TARGETS[::-1].copy()), "some records differ"),
    "type": ((FEATURES.astype(np.float32), TARGETS), "dtypes"),
    "shape": ((FEATURES[:, :1].copy(), TARGETS), "shapes"),
    "parts": ((FEATURES,), "shapes"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_other_data_are_refused_and_the_stream_stays_as_it_was(which: str) -> None:
    run, (data, why) = make_run("poisson"), OTHERS[which]
    state = cut_after(BatchStream(run, numbered(23), seeded(2)), 4)
    stream = BatchStream(run, data, seeded(8))
    with pytest.raises(InputError, match=why):
        stream.load_state_dict(state)
    assert steps_of(stream) == steps_of(BatchStream(run, data, seeded(8)))


@pytest.mark.parametrize("changes", [{"records": 24}, {"size": 4}, {"steps": 10}, {"design": "balls_in_bins"}, {"cap": 3}])
def test_another_run_or_cap_is_refused(changes: dict[str, Any]) -> None:
    state = cut_after(BatchStream(make_run("poisson", steps=11), numbered(23), seeded(2)), 4)
    run = make_run(**{"design": "poisson", "steps": 11, **changes})
    with pytest.raises(InputError, match="it belongs to the draws"):
        BatchStream(run, numbered(run.records)).load_state_dict(state)


class Augmented(Listed):
    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        features, target = super().__getitem__(index)
        return features + torch.rand(1).item(), target


def test_augmented_data_can_be_resumed_and_fingerprints_leave_the_global_generator_alone() -> None:
    run = make_run("cyclic")
    stream, before = BatchStream(run, Augmented(23)), torch.random.get_rng_state()
    state = stream.state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    features, targets = state["source"]["samples"]
    assert not features  # not compared
    assert targets
    again = BatchStream(run, Augmented(23))
    again.load_state_dict(state)
    assert len(steps_of(again)) == run.total_steps
    turned = Augmented(23)
    turned.features, turned.targets = turned.features[::-1].copy(), turned.targets[::-1].copy()
    with pytest.raises(InputError, match="some records differ from those of the checkpoint, or stand in another order"):
        BatchStream(run, turned).load_state_dict(state)
