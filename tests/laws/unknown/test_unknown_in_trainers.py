"""Trainers and recorders refuse by name what they do not know, and draw no batches of a design without a sampler."""

from __future__ import annotations

import pytest
from made_up_runs import UNKNOWN, DrawnTogether, FreshHeaps, MadeUp, PublicHeaps, PublicSlots, SecretHeaps, of_design, refused
from trainers_to_ask import TRAINERS

import lethe
from lethe.errors import HypothesisError
from lethe.train.core.recorder import Recorder


@pytest.mark.slow
@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_no_trainer_takes_a_word_that_it_does_not_know(trainer: str, name: str) -> None:
    refused(name, lambda: TRAINERS[trainer](UNKNOWN[name]()))


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_recorder_takes_a_word_that_it_does_not_know(name: str) -> None:
    refused(name, lambda: Recorder(UNKNOWN[name](), seeded=False))


@pytest.mark.parametrize("design", [PublicSlots, PublicHeaps, SecretHeaps, FreshHeaps, DrawnTogether])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_nobody_draws_batches_of_a_design_without_a_sampler(trainer: str, design: type[MadeUp]) -> None:
    """Batches of exact size whose order is public could be drawn in many ways: the design's own is not known."""
    clip = {} if trainer in ("fit_linear", "fit_head") else {"clip_norm": 1.0, "loss": {"kind": "unknown"}}
    refused(design.design, lambda: TRAINERS[trainer](of_design(design, release="all", **clip)))


def test_the_recorder_of_a_public_slot_holds_it_to_its_slots() -> None:
    def record(again: slice) -> lethe.Run:
        run = of_design(PublicSlots, loss={"kind": "unknown"}, clip_norm=1.0)
        recorder = Recorder(run, seeded=False)
        for step in range(run.total_steps):
            slot = step % 10
            batch = slice(10 * slot, 10 * slot + 10) if step != 10 else again
            recorder.note(step_size=0.5, noise_std=float(run.noise_stds[step]), batch=batch)
        return recorder.run(run, enforced=False)

    assert record(slice(0, 10)) == of_design(PublicSlots, loss={"kind": "unknown"}, clip_norm=1.0)
    with pytest.raises(HypothesisError, match="public_slots"):
        record(slice(10, 20))
    refused("public_heaps", lambda: Recorder(of_design(PublicHeaps), seeded=False))
