"""Regressors whose rows are whitened within their fit: what it costs, what is trained on, which of them do it, and what it gains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import build
from scipy import sparse

from lethe.calculus.guarantees import GDP
from lethe.estimators import HuberRegressor, LinearRegression, LogisticRegression, Ridge
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.models import whitened_rows as whitening
from lethe.estimators.models.whitened_rows import WhitenedRows, planned_whitening

DELTA = 1e-5
SEEDED: dict[str, Any] = {"random_state": 0, "seed_noise": True}
REACH = 1.2  # as docs/estimators.md says


def narrow(records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm about 1 that lie about a mean far from 0, and differ little; targets about 10."""
    rng = np.random.default_rng(seed)
    away = rng.standard_normal((records, 4))
    return (0.9 + 0.05 * away) / 2.0, 10.0 + 0.3 * (away @ np.array([1.0, -1.0, 1.0, -1.0]) + 0.5 * rng.standard_normal(records))


def model(kind: Any = LinearRegression, **changes: Any) -> Any:
    return build(
        kind, **{"epsilon": 2.0, "delta": DELTA, "feature_norm": 1.0, "target_bound": (8.0, 12.0), "neighbours": "replace_one", **changes}
    )


@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [(LinearRegression, "adassp"), (Ridge, "output_perturbation"), pytest.param(HuberRegressor, "pass_ends", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("bound", ["auto", (8.0, 12.0)])
def test_predictions_are_those_of_rows_whitened_by_hand(monkeypatch: pytest.MonkeyPatch, bound: Any, kind: Any, mechanism: str) -> None:
    """Moments that cost nothing, and the same rows whitened by hand: the same noise and predictions, on a ball that reaches further."""
    rows, values = narrow(600)
    rows[:100] *= 7.0  # which are projected
    spread = np.array([[9.0, 2.0, 0.0, 0.0], [2.0, 7.0, 1.0, 0.0], [0.0, 1.0, 8.0, 3.0], [0.0, 0.0, 3.0, 9.0]])
    made = WhitenedRows(mean=np.array([0.3, 0.2, 0.4, 0.25]), matrix=spread, norm=1.7)
    free = replace(moments(600).cost, guarantee=GDP(0.0))
    monkeypatch.setattr(whitening, "planned_statement", lambda *_, **__: free)
    monkeypatch.setattr(whitening, "_by_covariance", lambda *_: (made, free))
    seeded: dict[str, Any] = {"mechanism": mechanism, "target_bound": bound, **SEEDED}
    fitted = model(kind, whiten=True, feature_norm=1.5, **seeded).fit(rows, values)
    assert fitted.whitened_.norm == pytest.approx(REACH * 1.7)
    unit = (rows * np.minimum(1.0 / 1.5, 1.0 / np.linalg.norm(rows, axis=1, keepdims=True)) - made.mean) @ spread
    by_hand = model(kind, whiten=False, feature_norm=REACH * 1.7, **seeded).fit(unit, values)
    low, high = fitted.target_range_
    expected = unit @ by_hand.coef_ + by_hand.intercept_
    assert np.mean((expected > low) & (expected < high)) > 0.5
    np.testing.assert_allclose(fitted.predict(rows), np.clip(expected, low, high), rtol=1e-7)
    short = rows[100:]
    np.testing.assert_allclose(fitted.predict(short), np.clip(short @ fitted.coef_ + fitted.intercept_, low, high), rtol=1e-12)


def moments(records: int) -> whitening.PlannedWhitening:
    planned = planned_whitening(records, 4, PrivacyBudget(epsilon=2.0, delta=DELTA, neighbours="replace_one"), regression=True)
    assert planned is not None
    assert planned.covariance
    return planned


def test_a_regression_spends_less_on_moments_and_releases_no_mean_alone() -> None:
    def decided(records: int, regression: bool) -> bool | None:
        budget = PrivacyBudget(epsilon=1.0, delta=DELTA, neighbours="replace_one")
        planned = planned_whitening(records, 20, budget, regression=regression)
        return None if planned is None else planned.covariance

    assert [decided(records, False) for records in (300, 1000, 1500, 2000)] == [None, False, True, True]
    assert [decided(records, True) for records in (300, 1000, 1500, 2000)] == [None, None, None, True]


@pytest.mark.slow
def test_which_rows_are_whitened() -> None:
    rows, values = narrow(600)
    quick: dict[str, Any] = {"batches": "full", "passes": 2, **SEEDED}
    one = model(**quick).fit(rows, values).whitened_
    assert one is not None
    weighted = model(**quick).fit(rows, values, sample_weight=np.linspace(0.0, 1.0, 600)).whitened_
    np.testing.assert_array_equal(weighted.mean, one.mean)  # what is released of rows is the same whatever their weights
    labels = (values > 10.0).astype(int)
    classes = build(LogisticRegression, epsilon=2.0, delta=DELTA, feature_norm=1.0, classes=[0, 1], **quick).fit(rows, labels).whitened_
    assert classes is not None
    assert one.norm == pytest.approx(REACH * classes.norm, rel=0.05)
    assert model(HuberRegressor, **quick).fit(rows, values).whitened_ is not None
    assert model(**quick, whiten=False).fit(rows, values).whitened_ is None
    assert model(**quick | {"batches": "auto", "mechanism": "cyclic"}).fit(rows, values).whitened_ is None
    assert model(**quick).fit(sparse.csr_array(rows), values).whitened_ is None
    assert model(**quick).fit(rows, values, users=np.arange(600) // 2).whitened_ is None
    assert model(**quick, fit_intercept=False).fit(rows, values).whitened_ is None


def test_no_ridge_is_taken_that_epsilon_barely_allows() -> None:
    """At .345 the noise of the smallest ridge that it allows is large: R^2 was .38 there, and .60 at .3."""
    rng, records, columns = np.random.default_rng(0), 8000, 20
    rows = rng.standard_normal((records + 4000, columns)) / np.arange(1, columns + 1)
    clean = rows @ (rng.standard_normal(columns) * np.arange(1, columns + 1))
    targets = clean + 0.7 * clean.std() * rng.standard_normal(len(clean))
    rows /= np.quantile(np.linalg.norm(rows, axis=1), 0.95)
    bound = float(np.quantile(np.abs(targets), 0.99))
    model = LinearRegression(epsilon=0.345, delta=1e-5, feature_norm=1.0, target_bound=bound, random_state=0, seed_noise=True)
    model.set_params(options__allow_large_delta=True).fit(rows[:records], targets[:records])
    assert model.score(rows[records:], targets[records:]) > 0.57
