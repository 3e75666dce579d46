"""A recorder's notes go on where they were, and what is not of the design is still seen."""

import io
from typing import Any

import pytest
import torch
from helpers import DESIGNS, EXACT_DESIGNS, EXACT_SLOT_DESIGNS
from hypothesis import given
from hypothesis import strategies as st
from networks import make_network_run

from lethe.errors import HypothesisError
from lethe.run.run import Run
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches


def note(recorder: Recorder, run: Run, step: int, batch: Batch) -> None:
    recorder.note(step_size=float(run.step_sizes[step]), noise_std=float(run.noise_stds[step]), batch=batch)


def through_a_file(recorder: Recorder, run: Run) -> Recorder:
    file = io.BytesIO()
    torch.save(recorder.state_dict(), file)
    file.seek(0)
    again = Recorder(run, seeded=False)
    again.load_state_dict(torch.load(file, weights_only=True))
    return again


@pytest.mark.slow
@given(
    design=st.sampled_from(DESIGNS),
    changes=st.sampled_from([{}, {"noise_at": "pass_ends"}, {"step_size": {"schedule": "exponential", "first": 0.5, "ratio": 0.9}}]),
    cuts=st.sets(st.integers(0, 9), max_size=4),
)
def test_cut_anywhere_recorded_is_planned(design: str, changes: dict[str, Any], cuts: set[int]) -> None:
    run = make_network_run(design, noise_multiplier=1.0, **changes)
    recorder = Recorder(run, seeded=False)
    for step, batch in enumerate(draw_batches(run, torch.Generator().manual_seed(1))):
        if step in cuts:
            recorder = through_a_file(recorder, run)
            assert recorder.steps == step
        note(recorder, run, step, batch)
    assert through_a_file(recorder, run).run(run, enforced=False) == run


@pytest.mark.parametrize("design", EXACT_DESIGNS)
@pytest.mark.parametrize("cut", [0, 5, 6])
def test_a_batch_that_is_not_of_the_design_is_seen_before_and_after_the_cut(design: str, cut: int) -> None:
    run = make_network_run(design, noise_multiplier=1.0)
    drawn = list(draw_batches(run, torch.Generator().manual_seed(1)))
    # In a later pass the records of another step, or fewer of them: for designs of fixed batches a record that meets two steps of a pass.
    drawn[5] = drawn[4] if design in EXACT_SLOT_DESIGNS else torch.arange(4)
    recorder = Recorder(run, seeded=False)
    for step, batch in enumerate(drawn):
        if step == cut:
            recorder = through_a_file(recorder, run)
        note(recorder, run, step, batch)
    with pytest.raises(HypothesisError, match="the batch of step 6 is not of the design"):
        recorder.run(run, enforced=False)
