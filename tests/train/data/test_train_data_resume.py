"""Cutting a run at every step and taking it up again gives exactly the remaining batches, and other data are refused."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import VARIABLE, Listed, listed, make_run, numbered, seeded
from helpers import DESIGNS

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.data.batches import BatchStream
from lethe.train.data.sources import TensorSource


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


def some_runs() -> list[Run]:
    return [make_run(design, steps=11) for design in DESIGNS] + [make_run(design, cap=4, steps=11) for design in VARIABLE]


@pytest.mark.sampled(10)
@pytest.mark.slow
@pytest.mark.parametrize("run", some_runs())
def test_resuming_after_every_step(run: Run) -> None:
    data = numbered(run.records)
    uncut = steps_of(BatchStream(run, data, seeded(5)))
    assert len(uncut) == 11
    for step in range(12):
        state = cut_after(BatchStream(run, data, seeded(5), physical_size=2), step)
        if run.batches.design in ("shuffled", "poisson", "without_replacement"):
            assert 0 <= step - state["anchor_step"] <= run.steps_per_pass  # a pass at most is drawn again
        again = BatchStream(run, data, seeded(99), physical_size=3)
        again.load_state_dict(state)
        assert again.steps_done == step
        assert steps_of(again) == uncut[step:]


def test_a_half_delivered_step_has_no_state() -> None:
    stream = BatchStream(make_run("cyclic"), numbered(23), physical_size=2)
    for number, batch in enumerate(stream):
        assert batch.last == (number == 2)
        if batch.last:
            assert stream.state_dict()["steps_done"] == 1
            break
        with pytest.raises(InputError, match="step 1 is half delivered"):
            stream.state_dict()


def test_the_data_may_move_to_the_disk(tmp_path: Any) -> None:
    features, targets = numbered(23)
    np.save(tmp_path / "a.npy", features)
    np.save(tmp_path / "b.npy", targets)
    run = make_run("poisson")
    state = cut_after(BatchStream(run, (features, targets), seeded(2)), 4)
    moved = BatchStream(run, TensorSource(tmp_path))
    moved.load_state_dict(state)
    assert steps_of(moved) == steps_of(BatchStream(run, (features, targets), seeded(2)))[4:]


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


def test_another_state_is_refused() -> None:
    stream = BatchStream(make_run("poisson"), numbered(23), seeded(2))
    for state in ({**stream.state_dict(), "format": 1}, {**stream.state_dict(), "extra": 1}, None):
        with pytest.raises(InputError, match="not the state of a batch stream of this version"):
            stream.load_state_dict(state)


def test_keys_are_fresh_and_contents_are_not_in_the_state() -> None:
    run = make_run("cyclic")
    first, second = (BatchStream(run, numbered(23), seeded(2)).state_dict()["source"] for _ in range(2))
    assert first["key"] != second["key"]
    assert len(first["samples"]) == len(second["samples"]) == 2
    assert len(first["whole"]) == len(second["whole"]) == 2
    assert not {*first["samples"], *first["whole"]} & {*second["samples"], *second["whole"]}


class Augmented(Listed):
    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        features, target = super().__getitem__(index)
        return features + torch.rand(1).item(), target


class Turned(Augmented):
    """The same records from the last to the first."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return super().__getitem__(len(self) - 1 - index)


def test_augmented_data_can_be_resumed_and_fingerprints_leave_the_global_generator_alone() -> None:
    run = make_run("cyclic")
    stream = BatchStream(run, Augmented(23))
    before = torch.random.get_rng_state()
    state = stream.state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    features, targets = state["source"]["samples"]
    assert not features  # not compared
    assert targets
    again = BatchStream(run, Augmented(23))
    again.load_state_dict(state)
    assert len(steps_of(again)) == run.total_steps
    with pytest.raises(InputError, match="some records differ from those of the checkpoint, or stand in another order"):
        BatchStream(run, Turned(23)).load_state_dict(state)
