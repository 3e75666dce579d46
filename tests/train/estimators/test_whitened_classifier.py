"""Classifiers whose rows are whitened within their fit: what it costs, what is trained on, when it is done, and what it gains."""

from typing import Any

import numpy as np
import pytest
from private_cases import build
from scipy import sparse

import lethe
from lethe.calculus.guarantees import GDP
from lethe.estimators import LogisticRegression
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.models.whitened_rows import COVARIANCE_SHARE, WhitenedRows, planned_whitening, whitened_rows
from lethe.run.regularisers import L2

DELTA = 1e-5


def narrow(records: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows that lie about a mean far from 0, and differ little: rows of norm about 1."""
    rng = np.random.default_rng(seed)
    away = rng.standard_normal((records, 6))
    labels = (away @ np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]) + 0.5 * rng.standard_normal(records) > 0.0).astype(int)
    return (0.9 + 0.05 * away) / np.sqrt(6.0), labels


def model(**changes: Any) -> LogisticRegression:
    given: dict[str, Any] = {"epsilon": 2.0, "delta": DELTA, "feature_norm": 1.0, "classes": [0, 1], "random_state": 0, "seed_noise": True}
    return build(LogisticRegression, **given | changes)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("mechanism", ["auto", "pass_ends"])
def test_the_moments_are_part_of_what_is_stated(mechanism: str, neighbours: Any) -> None:
    rows, labels = narrow(1000)
    fitted = model(mechanism=mechanism, neighbours=neighbours, whiten=True, seed_noise=False, C=np.inf).fit(rows, labels)
    assert "mean and second moments" in fitted.statement_.name
    assert "whitened" in fitted.privacy_report_
    assert 2.0 * 0.98 <= fitted.epsilon_ <= 2.0
    if mechanism == "pass_ends":  # both are Gaussian: squares add up, so that the run has what the moments leave
        moments, run = PrivacyBudget(epsilon=2.0, delta=DELTA).share(COVARIANCE_SHARE).mu, lethe.certify(fitted.run_, DELTA).guarantee
        assert isinstance(run, GDP)
        assert isinstance(fitted.statement_.guarantee, GDP)
        assert fitted.statement_.guarantee.mu == pytest.approx(np.hypot(moments, run.mu), rel=1e-9)


@pytest.mark.parametrize(("neighbours", "moved"), [("replace_one", 2.5 / np.sqrt(2.0)), ("zero_out", np.sqrt(1.5))])
def test_the_moments_have_the_noise_that_their_share_asks_for(neighbours: Any, moved: float) -> None:
    budget = PrivacyBudget(epsilon=1.0, delta=DELTA, neighbours=neighbours)
    settings: dict[str, Any] = {"feature_norm": 3.0, "budget": budget}
    planned = planned_whitening(2000, 4, budget)
    assert planned is not None
    assert planned.covariance
    rows = np.full((2000, 4), 0.9)  # of norm .6 R, so that hardly anything of the mean is given up
    found = [whitened_rows(rows, planned, **settings, generator=np.random.default_rng(seed))[1].mean for seed in range(300)]
    wanted = moved / (budget.share(COVARIANCE_SHARE).mu * np.sqrt(0.5) * 2000)
    assert float(np.std(found)) == pytest.approx(wanted, rel=4.0 / np.sqrt(2 * 1200))
    assert float(np.mean(found)) == pytest.approx(0.3, rel=0.01)


def test_the_noise_counts_on_no_ridge_that_whitened_rows_may_not_have() -> None:
    """How strong a ridge is on whitened rows follows from what was released; a weaker one than planned would contract less."""
    rows = np.random.default_rng(3).uniform(-1.0, 1.0, size=(4000, 6)) / np.sqrt(6.0)
    labels = (rows.sum(axis=1) > 0.0).astype(int)
    fitted = model(mechanism="pass_ends", whiten=True, seed_noise=False, C=0.01, epsilon=8.0).fit(rows, labels)
    run, made = fitted.run_, fitted.whitened_
    assert run is not None
    assert made is not None
    assert made.norm > 1.5
    assert isinstance(run.regulariser, L2)
    assert run.regulariser.strength == pytest.approx(1.0 / (0.01 * 4000) / made.norm**2)
    charged = lethe.certify(run.replace(regulariser=None), DELTA).guarantee
    assert isinstance(charged, GDP)
    assert isinstance(fitted.statement_.guarantee, GDP)
    moments = PrivacyBudget(epsilon=8.0, delta=DELTA).share(COVARIANCE_SHARE).mu
    assert fitted.statement_.guarantee.mu == pytest.approx(np.hypot(moments, charged.mu), rel=1e-9)


def by_hand(rows: Any, made: WhitenedRows, feature_norm: float) -> np.ndarray[Any, Any]:
    wide = np.asarray(rows, dtype=np.float64)
    projected = wide * np.minimum(1.0, feature_norm / np.linalg.norm(wide, axis=1))[:, None]
    assert made.matrix is not None
    return (projected / feature_norm - made.mean) @ made.matrix


def test_predictions_are_those_of_whitened_rows() -> None:
    rows, labels = narrow(800)
    fitted = model(whiten=True, epsilon=5.0, feature_norm=1.5).fit(rows, labels)
    made = fitted.whitened_
    assert made is not None
    assert made.matrix is not None
    long = np.vstack([rows[:50], 7.0 * rows[50:60]])
    weights = 1.5 * np.linalg.solve(made.matrix, fitted.coef_.T)
    constant = fitted.intercept_ + 1.5 * made.mean @ fitted.coef_.T
    np.testing.assert_allclose(fitted.decision_function(long), (by_hand(long, made, 1.5) @ weights + constant)[:, 0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(fitted.decision_function(rows[:5]), (rows[:5] @ fitted.coef_.T + fitted.intercept_)[:, 0], rtol=1e-9)


def test_one_record_of_any_length_moves_the_fit_no_further_than_one_at_the_bound() -> None:
    rows, labels = narrow(200)
    rows[3] /= np.linalg.norm(rows[3])
    far = rows.copy()
    far[3] *= 1e8
    one, other = (model(whiten=True).fit(table, labels) for table in (rows, far))
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6, atol=1e-9)


def test_when_it_is_done() -> None:
    rows, labels = narrow(400)
    assert model().fit(rows, labels).whitened_ is not None
    assert model(whiten=False).fit(rows, labels).whitened_ is None
    assert model(mechanism="pass_ends").fit(rows, labels).whitened_ is None
    assert model().fit(sparse.csr_array(rows), labels).whitened_ is None
    assert model().fit(rows, labels, users=np.arange(400) // 2).whitened_ is None
    assert model(fit_intercept=False).fit(rows, labels).whitened_ is None
    assert model(epsilon=0.3).fit(rows[:100], labels[:100]).whitened_ is None
    assert model(feature_norm="auto").fit(rows, labels).whitened_ is not None
    wide = np.random.default_rng(0).standard_normal((40, 1025)) / 40.0
    assert model(delta=1e-3).fit(wide, labels[:40]).whitened_ is None
