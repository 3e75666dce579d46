"""Planners, exporters, trainers and recorders refuse by name what they do not know, and draw no batches without a sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting.privacy_accountant import NeighboringRelation
from helpers import make_run
from made_up_runs import DELTA, UNKNOWN, DrawnTogether, FreshHeaps, MadeUp, PublicHeaps, PublicSlots, SecretHeaps, of_design, refused
from trainers_to_ask import TRAINERS

import lethe
from lethe.accounting.certify import cumulative_privacy, evaluate_theorems
from lethe.accounting.compare import compare
from lethe.errors import HypothesisError
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant, to_dp_event
from lethe.noise_allocation.allocate import SCHEDULES, allocate
from lethe.noise_allocation.noise_shapes import influence_of_curvature, shaped
from lethe.train.core.recorder import Recorder
from lethe.utility.excess_risk import excess_risk_bound

PLANNERS: dict[str, Callable[[lethe.Run], Any]] = {
    "evaluate_theorems": evaluate_theorems,
    "certify": lambda run: lethe.certify(run, DELTA),
    "compare": lambda run: compare(run, DELTA),
    "cumulative": lambda run: cumulative_privacy(run, DELTA, points=2),
    "plan": lambda run: lethe.plan(run, epsilon=1.0, delta=DELTA),
    **{f"allocate {schedule}": lambda run, schedule=schedule: allocate(run, 1.0, DELTA, schedule=schedule) for schedule in SCHEDULES},
    "shaped": lambda run: shaped(run, "influence", influence_of_curvature(of_design("cyclic"))),
    "excess risk": lambda run: excess_risk_bound(run, dimension=2, initial_gap=1.0),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("planner", PLANNERS)
def test_no_planner_takes_a_word_that_it_does_not_know(planner: str, name: str) -> None:
    refused(name, lambda: PLANNERS[planner](UNKNOWN[name]()))


@pytest.mark.parametrize("schedule", ["uniform", "influence", "joint"])
def test_a_public_slot_is_planned_as_one(schedule: Any) -> None:
    said, known = (allocate(of_design(one), 1.0, DELTA, schedule=schedule).run for one in (PublicSlots, "cyclic"))
    assert np.array_equal(said.noise_multipliers, known.noise_multipliers)


@pytest.mark.parametrize("design", [PublicHeaps, SecretHeaps, FreshHeaps])
def test_batches_of_unknown_size_have_no_joint_schedule(design: type[MadeUp]) -> None:
    refused(design.design, lambda: allocate(of_design(design), 1.0, DELTA, schedule="joint"))


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_exporter_takes_a_word_that_it_does_not_know(name: str) -> None:
    run, certificate = UNKNOWN[name](), lethe.certify(make_run(), DELTA)
    refused(name, lambda: replace(certificate, run=run))
    object.__setattr__(certificate, "run", run)
    refused(name, lambda: to_dp_event(certificate))
    accountant = LetheAccountant(NeighboringRelation.REPLACE_ONE)
    refused(name, lambda: accountant.compose(LastIterateDpEvent(run, "monday")))


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
