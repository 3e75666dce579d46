"""A made-up loss or regulariser is what it states; nobody trains it, estimates its influence or takes its proximal step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import batches as batches_of
from helpers import make_run
from made_up_runs import MadeUpLoss, MadeUpRegulariser, refused, said_by
from trainers_to_ask import TRAINERS

import lethe
from lethe.errors import InputError
from lethe.heavy_tailed.proximal import require_pair
from lethe.heavy_tailed.sets import WholeSpace
from lethe.influence import SyntheticData, adjoint_influence, quadratic_influence, retraining_influence
from lethe.influence.quadratic import PublicCurvatures
from lethe.theorems.base import Theorem
from lethe.theorems.registry import ALL, OURS
from lethe.utility.excess_risk import excess_risk_bound


@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_a_made_up_loss_is_what_it_states(theorem: Theorem) -> None:
    for facts, same in (((0.0, 0.5), {"kind": "convex", "smoothness": 0.5}), (None, {"kind": "unknown"})):
        for design in ("full", "cyclic", "poisson"):
            changes = {"batches": batches_of(design, 10), "clip_norm": 1.0}
            said = said_by(theorem, make_run(loss=MadeUpLoss(claimed=facts), **changes))
            assert said == said_by(theorem, make_run(loss=same, **changes))


@pytest.mark.parametrize("facts", [(math.nan, math.nan), (0.0, math.nan), (0.5, -1.0), (-1.0, 0.5)])
def test_a_loss_that_states_what_no_loss_has_is_refused(facts: tuple[float, float]) -> None:
    loss = MadeUpLoss()
    vars(loss)["claimed"] = facts
    refused("made_up_loss", lambda: make_run(loss=loss, clip_norm=1.0))


@pytest.mark.parametrize("trainer", ["fit_linear", "fit_head"])
def test_a_made_up_loss_is_trained_by_nobody(trainer: str) -> None:
    refused("made_up_loss", lambda: TRAINERS[trainer](make_run(loss=MadeUpLoss(), clip_norm=1.0)))


PUBLIC = SyntheticData(columns=3, classes=2, seed=0)
INFLUENCES: dict[str, Callable[[lethe.Run], Any]] = {
    "quadratic": lambda run: quadratic_influence(run, PUBLIC),
    "adjoint": lambda run: adjoint_influence(run, PUBLIC, repeats=2, seed=0),
    "retraining": lambda run: retraining_influence(run, PUBLIC, repeats=2, seed=0),
}


@pytest.mark.parametrize("estimator", INFLUENCES)
def test_of_a_made_up_loss_no_influence_is_estimated(estimator: str) -> None:
    refused("made_up_loss", lambda: INFLUENCES[estimator](make_run(loss=MadeUpLoss(), clip_norm=1.0)))


@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_a_made_up_regulariser_proves_nothing(theorem: Theorem) -> None:
    for design in ("full", "cyclic", "poisson"):
        changes = {"batches": batches_of(design, 10)}
        said = said_by(theorem, make_run(regulariser=MadeUpRegulariser(), **changes))
        assert said == said_by(theorem, make_run(**changes))


@pytest.mark.parametrize("theorem", [theorem for theorem in OURS if theorem.covers == "last"], ids=lambda theorem: theorem.name)
def test_of_a_made_up_regulariser_it_is_not_known_how_its_step_rounds(theorem: Theorem) -> None:
    precision = {"dtype": "float64", "parameter_norm": 1.0}
    for design in ("full", "cyclic", "poisson"):
        run = make_run(batches=batches_of(design, 10), regulariser=MadeUpRegulariser(), release="last", precision=precision)
        assert "arithmetic" in [finding.name for finding in theorem.examine(run) if finding.status == "fails"]


REGULARISED: dict[str, Callable[[lethe.Run], Any]] = {
    **{name: TRAINERS[name] for name in ("fit_linear", "fit_head", "fit")},
    **{name: INFLUENCES[name] for name in ("adjoint", "retraining")},
}


@pytest.mark.parametrize("doer", REGULARISED)
def test_a_made_up_regulariser_has_no_proximal_step(doer: str) -> None:
    refused("made_up_regulariser", lambda: REGULARISED[doer](make_run(regulariser=MadeUpRegulariser(), clip_norm=1.0)))


def test_a_made_up_regulariser_is_no_ridge() -> None:
    made_up = MadeUpRegulariser()
    with pytest.raises(InputError, match="regulariser"):
        quadratic_influence(make_run(regulariser=made_up), PublicCurvatures(np.ones(1), statement="assumed"))
    with pytest.raises(InputError, match="regulariser"):
        require_pair(made_up, WholeSpace())
    run = make_run(batches={"design": "full"}, regulariser=made_up)
    refused("made_up_regulariser", lambda: excess_risk_bound(run, dimension=2, initial_gap=1.0, pl_constant=0.1))


@pytest.mark.parametrize(("fact", "value"), [("strong_convexity", -0.1), ("strong_convexity", math.nan), ("diameter", math.nan)])
def test_a_regulariser_that_states_what_no_convex_function_has_is_refused(fact: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MadeUpRegulariser, fact, value)
    refused("made_up_regulariser", lambda: make_run(regulariser=MadeUpRegulariser()))
