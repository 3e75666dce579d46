"""Whoever knows independent noise only refuses a run with correlated noise by its kind, and never takes one for the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers import make_run
from made_up_runs import DELTA, refused
from trainers_to_ask import TRAINERS

import lethe
from lethe.certificates.findings import first_failure
from lethe.errors import InputError
from lethe.influence import SyntheticData, adjoint_influence, quadratic_influence, retraining_influence
from lethe.noise_allocation.allocate import allocate
from lethe.noise_allocation.noise_shapes import influence_of_curvature, shaped
from lethe.theorems.base import Theorem
from lethe.theorems.composition import spent_budgets, touch_mus
from lethe.theorems.registry import ALL
from lethe.train.core.recorder import Recorder
from lethe.utility.excess_risk import excess_risk_bound

KIND = "banded_toeplitz"
NOISE = {"kind": KIND, "coefficients": [1.0, 0.5]}
PUBLIC = SyntheticData(columns=3, classes=2, seed=0)


def correlated(**changes: Any) -> lethe.Run:
    return make_run(noise=NOISE, **changes)


@pytest.mark.parametrize("release", ["last", "all"])
@pytest.mark.parametrize("theorem", ALL, ids=lambda theorem: theorem.name)
def test_two_theorems_alone_know_correlated_noise(theorem: Theorem, release: str) -> None:
    for design in ("cyclic", "full", "shuffled_once", "balls_in_bins"):
        batches = {"design": design} if design == "full" else {"design": design, "size": 10}
        run = correlated(release=release, batches=batches)
        if theorem.correlated:
            assert theorem.examine(run.uncorrelated)[0].name == "noise"
            continue
        (finding,) = theorem.examine(run)
        assert (finding.status, finding.name) == ("fails", "noise")
        refused(KIND, lambda run=run: theorem.bound(run))


@pytest.mark.parametrize("design", ["shuffled", "poisson", "without_replacement"])
def test_an_order_that_is_not_kept_is_refused(design: str) -> None:
    """By the run itself; and of one that was changed behind its back by every theorem."""
    batches = make_run(batches={"design": design, "size": 10}, release="all").batches
    refused(design, lambda: correlated(batches=batches))
    run = correlated(release="all")
    vars(run)["batches"] = batches
    failures = {failure.name for theorem in ALL if (failure := first_failure(theorem.examine(run))) is not None}
    assert failures == {"noise", "order", "random batches", "batches"}
    refused(design, lambda: lethe.certify(run, DELTA))


ASKED: dict[str, Callable[[lethe.Run], Any]] = {
    "noise_multipliers": lambda run: run.noise_multipliers,
    "noise_stds": lambda run: run.noise_stds,
    "relative_noise": lambda run: run.relative_noise,
    "record_noise": lambda run: run.record_noise,
    "touches": touch_mus,
    "budgets": spent_budgets,
    **{
        f"allocate {schedule}": lambda run, schedule=schedule: allocate(run, 1.0, DELTA, schedule=schedule)
        for schedule in ("auto", "uniform", "exponential", "influence", "joint")
    },
    "shaped": lambda run: shaped(run, "influence", influence_of_curvature(make_run())),
    "excess risk": lambda run: excess_risk_bound(run, dimension=2, initial_gap=1.0),
    "recorder": lambda run: Recorder(run, seeded=False),
    "quadratic": lambda run: quadratic_influence(run, PUBLIC),
    "adjoint": lambda run: adjoint_influence(run, PUBLIC, repeats=2, seed=0),
    "retraining": lambda run: retraining_influence(run, PUBLIC, repeats=2, seed=0),
    **{f"trainer {name}": trainer for name, trainer in TRAINERS.items() if name not in ("fit_linear", "fit", "engine", "fit_head")},
}


@pytest.mark.parametrize("who", ASKED)
def test_correlated_noise_is_refused_by_its_kind(who: str) -> None:
    refused(KIND, lambda: ASKED[who](correlated(release="all", clip_norm=1.0)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise_at": "pass_ends"}, "noise_at = pass_ends"),
        ({"noise_at": "pass_ends", "pass_weights": 1.0}, "pass_weights"),
        ({"noise_budget": 1.0, "release": "all"}, "noise_budget"),
        ({"noise_multiplier": [5.0] * 49 + [6.0]}, "one number"),
        ({"noise_multiplier": {"schedule": "exponential", "first": 5.0, "ratio": 0.9}}, "one number"),
        ({"noise": {"kind": "made_up"}}, "made_up"),
        ({"noise": {"coefficients": [1.0]}}, "kind: missing"),
        ({"noise": "banded"}, "mapping"),
        ({"noise": 1.0}, "noise_multiplier"),
        ({"noise": {"kind": KIND, "coefficients": []}}, "coefficients"),
        ({"noise": {"kind": KIND, "coefficients": [0.0, 1.0]}}, "strategy"),
        ({"noise": {"kind": KIND, "coefficients": [1.0, -0.5]}}, "strategy"),
        ({"noise": {"kind": KIND, "coefficients": [1.0, float("nan")]}}, "noise"),
        ({"noise": {"kind": "buffered_toeplitz", "scales": [0.5], "decays": [1.0]}}, "decays"),
        ({"noise": {"kind": "buffered_toeplitz", "scales": [0.5], "decays": [0.5, 0.1]}}, "decays"),
        ({"noise": {"kind": "buffered_toeplitz", "scales": [-0.5], "decays": [0.5]}}, "scales"),
        ({"noise": {"kind": "lower_triangular", "file": "none.npy", "sha256": "0" * 64}}, "no such file"),
        ({"noise": {"kind": "lower_triangular", "file": "none.npy", "sha256": "0"}}, "sha256"),
    ],
)
def test_what_does_not_go_with_correlated_noise_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_run(**{"noise": NOISE, **changes})
