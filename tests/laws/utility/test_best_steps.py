"""steps="best": the number of steps that the closed forms of Hong et al. have, that of all numbers tried one by one, and its refusals."""

from typing import Any

import numpy as np
import pytest

import lethe
from lethe.errors import CalibrationError, HypothesisError, InputError
from lethe.utility import excess_risk_bound
from lethe_experiments.risk.best_steps import best_steps_dynamic, best_steps_uniform
from lethe_experiments.risk.gradient_descent import noise_to_gap

RIDGE, RECORDS, DIMENSION, GAP = 0.1, 10_000, 650, 2.303
PUBLIC: dict[str, Any] = {"dimension": DIMENSION, "initial_gap": GAP}


def _run(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {
        "records": RECORDS,
        "batches": {"design": "full"},
        "steps": 300,
        "step_size": 1.8,
        "loss": {"kind": "softmax_regression", "feature_norm": 1.0},
        "regulariser": {"kind": "ridge", "strength": RIDGE},
        "release": "last",
        "neighbours": "zero_out",
    }
    return lethe.Run(**{**fields, **changes})


@pytest.mark.parametrize(("kappa", "alpha"), [(2.0, 1e-3), (10.0, 1e-4), (10.0, 1e-2), (100.0, 1e-6)])
def test_it_is_the_closed_form_under_composition(kappa: float, alpha: float) -> None:
    """Steps of 1/M, every iterate released, one record replaced: sqrt(4R)-GDP for R of the paper, to which alpha is inverse."""
    loss = {"kind": "strongly_convex", "strong_convexity": 1.0 / kappa, "smoothness": 1.0, "gradient_bound": 2.0}
    run = _run(loss=loss, regulariser=None, step_size=1.0, release="all", steps=2000, records=200, neighbours="replace_one")
    unit = noise_to_gap(dimension=3, gradient_bound=2.0, budget=1.0, smoothness=1.0, records=200, initial_gap=1.0)
    budget = {"target": lethe.guarantees.GDP(2.0 * (unit / alpha) ** 0.5)}
    public: dict[str, Any] = {"steps": "best", "dimension": 3, "initial_gap": 1.0}
    planned = lethe.plan(run, **budget, **public)
    spread = lethe.allocate(run, **budget, **public, schedule="influence").run
    for best, exact in ((planned, best_steps_uniform(kappa, alpha)), (spread, best_steps_dynamic(kappa, alpha))):
        assert best.total_steps == pytest.approx(exact.steps, rel=5e-3, abs=0.1)
        found = excess_risk_bound(best, dimension=3, initial_gap=1.0).value
        assert exact.value * (1 - 1e-12) <= found <= exact.value * (1 + 2e-6)


@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize("step_size", [0.5, {"schedule": "time_decay", "first": 1.8, "rate": 0.01}])
def test_no_other_number_of_steps_has_a_smaller_bound(release: str, step_size: Any) -> None:
    run = _run(release=release, step_size=step_size, steps=60)
    best = lethe.plan(run, 2.0, 1e-5, steps="best", **PUBLIC)
    bounds = [excess_risk_bound(lethe.plan(run.replace(steps=count), 2.0, 1e-5), **PUBLIC).value for count in range(1, 61)]
    assert excess_risk_bound(best, **PUBLIC).value <= min(bounds) * (1 + 1e-6)
    assert best.total_steps == 1 + next(place for place, bound in enumerate(bounds) if bound <= min(bounds) * (1 + 1e-6))
    assert lethe.certify(best, delta=1e-5).epsilon <= 2.0
    assert best == lethe.plan(run.replace(steps=best.total_steps), 2.0, 1e-5)


def test_the_influence_of_the_bound_is_what_each_step_s_noise_adds() -> None:
    run = _run(steps=12, step_size=np.linspace(1.8, 0.2, 12).tolist(), noise_multiplier=np.linspace(3.0, 9.0, 12).tolist())
    bound = excess_risk_bound(run, **PUBLIC)
    added = []
    for step in range(12):
        louder = run.noise_multipliers.copy()
        louder[step] *= 3.0
        added.append(
            (excess_risk_bound(run.replace(noise_multiplier=louder.tolist()), **PUBLIC).noise - bound.noise) / run.noise_stds[step] ** 2
        )
    assert bound.influence.values(12) == pytest.approx(np.array(added) / max(added), rel=1e-6)


def test_the_schedule_of_the_bound_s_influence_beats_others_under_composition() -> None:
    run = _run(release="all")
    found = {}
    for schedule in ("uniform", "exponential", "influence"):
        allocated = lethe.allocate(run, 1.0, 1e-5, schedule=schedule, steps="best", **PUBLIC).run
        found[schedule] = excess_risk_bound(allocated, **PUBLIC).value
        assert lethe.certify(allocated, delta=1e-5).epsilon <= 1.0
    assert found["influence"] <= found["exponential"] * (1 + 1e-6) < found["uniform"]
    assert (
        lethe.plan(run, 1.0, 1e-5, steps="best", **PUBLIC) == lethe.allocate(run, 1.0, 1e-5, schedule="uniform", steps="best", **PUBLIC).run
    )


@pytest.mark.parametrize(
    ("changes", "asked", "error", "words"),
    [
        ({}, {"steps": "fewest"}, InputError, "needs 'best'"),
        ({}, {"dimension": None}, InputError, "both numbers"),
        ({}, {"steps": None}, InputError, "both numbers"),
        ({}, {"initial_gap": -1.0}, InputError, "initial_gap"),
        ({"step_size": [1.8] * 300}, {}, InputError, "step_size: listed"),
        ({"regulariser": None}, {}, HypothesisError, "no constant is known"),
        ({"batches": {"design": "poisson", "size": 100}}, {}, HypothesisError, "full batches"),
        ({"clip_norm": 0.1}, {}, HypothesisError, "clipping is active"),
        ({"step_size": 6.0}, {}, HypothesisError, "step size"),
        ({"records": 150}, {}, CalibrationError, "no number of steps up to 300"),
    ],
)
def test_where_the_bound_does_not_apply_it_is_refused(
    changes: dict[str, Any], asked: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        lethe.plan(_run(**changes), 1.0, 1e-5, **{"steps": "best", **PUBLIC, **asked})


def test_a_schedule_is_named_for_it() -> None:
    with pytest.raises(InputError, match="one schedule"):
        lethe.allocate(_run(), 1.0, 1e-5, steps="best", **PUBLIC)
