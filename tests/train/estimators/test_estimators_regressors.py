"""Private regressions: what they cost, what they minimise, and targets that are truncated at the ends of their range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
from excused_checks import SEEDED
from gaussian_guarantees import mu_of
from private_cases import build
from scipy.optimize import minimize

from lethe.estimators import ElasticNet, HuberRegressor, Lasso, LinearRegression, Ridge
from lethe.estimators.models.regressors import PrivateRegressor
from lethe.estimators.options import EstimatorOptions

NO_NOISE = {"epsilon": 1e6, "delta": 1e-5, "feature_norm": 100.0, "target_bound": 100.0, "random_state": 0, "seed_noise": True}


def line(records: int = 400, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((records, 3))
    return X, X @ np.array([2.0, -1.0, 0.0]) + 0.5 + noise * rng.standard_normal(records)


def fitted(make: type[PrivateRegressor] = LinearRegression, records: int = 400, **parameters: Any) -> PrivateRegressor:
    return build(make, **{"feature_norm": 4.0, "target_bound": 8.0, **parameters}).fit(*line(records))


def test_without_noise_ridge_is_scikit_learns() -> None:
    X, y = line(100)
    wanted = sklearn.linear_model.Ridge(alpha=30.0, fit_intercept=False).fit(X, y).coef_
    tight = {**NO_NOISE, "feature_norm": float(np.linalg.norm(X, axis=1).max()), "target_bound": 8.0, "epsilon": 1e8}
    for mechanism in ("adassp", "objective_perturbation"):
        model = Ridge(alpha=30.0, options=EstimatorOptions(mechanism=mechanism), fit_intercept=False, **tight).fit(X, y)
        np.testing.assert_allclose(model.coef_, wanted, atol=0.01)


def test_without_noise_lasso_is_scikit_learns() -> None:
    X, y = line(100)
    norm = {**NO_NOISE, "feature_norm": float(np.linalg.norm(X, axis=1).max()), "target_bound": 8.0, "epsilon": 1e8}
    for ours, theirs in (
        (
            Lasso(alpha=0.7, fit_intercept=False, options=EstimatorOptions(passes=1000, batches="full"), **norm),
            sklearn.linear_model.Lasso(alpha=0.7, fit_intercept=False),
        ),
        (
            ElasticNet(alpha=0.7, l1_ratio=0.4, fit_intercept=False, options=EstimatorOptions(passes=1000, batches="full"), **norm),
            sklearn.linear_model.ElasticNet(alpha=0.7, l1_ratio=0.4, fit_intercept=False),
        ),
    ):
        np.testing.assert_allclose(ours.fit(X, y).coef_, theirs.fit(X, y).coef_, atol=0.01)
        assert ours.run_.regulariser is not None


def test_without_noise_huber_is_its_objective_and_forgets_an_outlier() -> None:
    X, y = line(100)
    y[0] = 1e6
    model = HuberRegressor(alpha=2.0, residual_bound=0.3, fit_intercept=False, **{**NO_NOISE, "target_bound": None}).fit(X, y)

    def objective(w: np.ndarray) -> float:
        short = np.abs(X @ w - y)
        return float(np.where(short <= 0.3, short**2 / 2, 0.3 * (short - 0.15)).sum() + w @ w)

    # The mechanism's own ridge may not be smaller than the smallest of its grid.
    np.testing.assert_allclose(model.coef_, minimize(objective, np.zeros(3), tol=1e-10).x, atol=0.02)
    assert np.abs(model.coef_ - [2.0, -1.0, 0.0]).max() < 0.25


def test_a_private_range_is_learned_and_paid_for() -> None:
    X, y = line(10_000)
    asked: dict[str, Any] = {"feature_norm": 4.0, "mechanism": "cyclic", "passes": 4}
    seeded = build(LinearRegression, **asked, **SEEDED).fit(X, 3.0 * y + 1000.0)  # with fresh noise 17 ranges of 2581 were lost
    low, high = seeded.target_range_
    assert 900.0 < low < 1000.0 < high < 1100.0
    assert seeded.score(X, 3.0 * y + 1000.0) > 0.8
    model, alone = (build(LinearRegression, **asked, target_bound=bound).fit(X, y) for bound in ("auto", 1.0))
    training = next(line for line in model.privacy_report_.splitlines() if "cyclic:" in line)
    mu = float(training.split(";")[-1].strip().removesuffix("-GDP"))
    assert mu == pytest.approx(mu_of(alone.certificate_.guarantee) * math.sqrt(0.95), rel=0.01)  # the documented twentieth


LOW, HIGH = -1.0, 5.0
RNG = np.random.default_rng(8)
ROWS = RNG.standard_normal((300, 2)) + 1.0
TARGETS = 2.0 * ROWS[:, 0] + 1.0 + 4.0 * RNG.standard_normal(300)
BOUNDED = {"random_state": 2, "seed_noise": True, "feature_norm": 3.0, "epsilon": 20.0, "target_bound": (LOW, HIGH)}
MODELS = (
    *(
        LinearRegression(options=EstimatorOptions(mechanism=name), **BOUNDED)
        for name in ("output_perturbation", "adassp", "cyclic", "poisson")
    ),
    LinearRegression(options=EstimatorOptions(mechanism="objective_perturbation"), neighbours="zero_out", **BOUNDED),
    Ridge(options=EstimatorOptions(mechanism="pass_ends"), **BOUNDED),
    Lasso(alpha=1e-6, options=EstimatorOptions(mechanism="pass_ends"), **BOUNDED),
    ElasticNet(alpha=1e-6, options=EstimatorOptions(mechanism="full_batch"), **BOUNDED),
)


def weights(model: PrivateRegressor, targets: np.ndarray) -> list[float]:
    fitted: Any = model.fit(ROWS, targets)
    return [*fitted.coef_.tolist(), fitted.intercept_]


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
