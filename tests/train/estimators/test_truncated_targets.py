"""Targets beyond their range are trained on as if they were at its end, bit for bit; predictions are truncated there, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lethe.estimators import ElasticNet, Lasso, LinearRegression, Ridge
from lethe.estimators.models.regressors import PrivateRegressor
from lethe.estimators.options import EstimatorOptions

LOW, HIGH = -1.0, 5.0
RNG = np.random.default_rng(8)
ROWS = RNG.standard_normal((300, 2)) + 1.0
TARGETS = 2.0 * ROWS[:, 0] + 1.0 + 4.0 * RNG.standard_normal(300)
SEEDED = {"random_state": 2, "seed_noise": True, "feature_norm": 3.0, "epsilon": 20.0, "target_bound": (LOW, HIGH)}
MODELS = (
    *(
        LinearRegression(options=EstimatorOptions(mechanism=name), **SEEDED)
        for name in ("output_perturbation", "adassp", "cyclic", "poisson")
    ),
    LinearRegression(options=EstimatorOptions(mechanism="objective_perturbation"), neighbours="zero_out", **SEEDED),
    Ridge(options=EstimatorOptions(mechanism="pass_ends"), **SEEDED),
    Lasso(alpha=1e-6, options=EstimatorOptions(mechanism="pass_ends"), **SEEDED),
    ElasticNet(alpha=1e-6, options=EstimatorOptions(mechanism="full_batch"), **SEEDED),
)


def weights(model: PrivateRegressor, targets: np.ndarray) -> list[float]:
    fitted: Any = model.fit(ROWS, targets)
    return [*fitted.coef_.tolist(), fitted.intercept_]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    # By day one run and one minimiser.
    [
        model if model.options.mechanism in ("cyclic", "output_perturbation") else pytest.param(model, marks=pytest.mark.nightly)
        for model in MODELS
    ],
    ids=[f"{type(model).__name__} by {model.options.mechanism}" for model in MODELS],
)
def test_targets_are_truncated_at_the_ends_of_their_range(model: PrivateRegressor) -> None:
    assert np.mean((TARGETS < LOW) | (TARGETS > HIGH)) > 0.3
    found = weights(model, TARGETS)
    assert found == weights(model, np.clip(TARGETS, LOW, HIGH))
    assert found != weights(model, np.clip(TARGETS, LOW, HIGH - 0.01))


def test_one_target_counts_no_more_than_the_end_of_the_range() -> None:
    far = TARGETS.copy()
    far[0], far[1] = 1e30, -1e30
    near = TARGETS.copy()
    near[0], near[1] = HIGH, LOW
    assert weights(MODELS[0], far) == weights(MODELS[0], near)
