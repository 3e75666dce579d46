"""Planners and exporters refuse by name what they do not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting.privacy_accountant import NeighboringRelation
from helpers import make_run
from made_up_runs import DELTA, UNKNOWN, FreshHeaps, MadeUp, PublicHeaps, PublicSlots, SecretHeaps, of_design, refused

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.accounting.compare import compare
from lethe.accounting.cumulative import cumulative_privacy
from lethe.integrations.dp_accounting import LastIterateDpEvent, LetheAccountant, to_dp_event
from lethe.noise_allocation.allocate import SCHEDULES, allocate
from lethe.noise_allocation.noise_shapes import influence_of_curvature, shaped
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
