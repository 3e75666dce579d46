"""Classifiers whose rows are whitened within their fit: what it costs, what is trained on, when it is done, and what it gains."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from private_cases import build
from scipy import sparse

import lethe
from lethe.calculus.guarantees import GDP
from lethe.errors import InputError, LetheError
from lethe.estimators import LinearSVC, LogisticRegression, SoftmaxRegression
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import choose
from lethe.estimators.choice.mechanism import Penalties
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.models.whitened_rows import COVARIANCE_SHARE, WhitenedRows, planned_whitening, whitened_rows
from lethe.estimators.randomness import randomness
from lethe.run.losses import Logistic
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
    budget = PrivacyBudget(epsilon=1.0, delta=DELTA)
    settings: dict[str, Any] = {"feature_norm": 3.0, "budget": budget, "neighbours": neighbours}
    planned = planned_whitening(2000, 4, budget, neighbours=neighbours)
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


def test_a_plan_that_counts_on_more_ridge_than_there_is_is_refused() -> None:
    rows, labels = narrow(200)
    facts = PublicFacts(records=200, columns=6, loss=Logistic(feature_norm=1.0), ridge=0.1)
    plan = choose("pass_ends", facts, PrivacyBudget(epsilon=1.0, delta=DELTA)).plan
    records = Records(rows, labels.astype(float), loss=Logistic(feature_norm=1.0), feature_norm=1.0, intercept=False)
    with pytest.raises(LetheError, match="the noise counts on"):
        plan.train(records, randomness(0, True, 200).draws, Penalties(ridge=0.05, l1=0.0))


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_each_row_is_made_by_itself_and_projected_before(dtype: Any) -> None:
    table = narrow(300)[0].astype(dtype)
    table[0] *= 1e6
    table[1] = 0.0
    before = table.copy()
    settings: dict[str, Any] = {"feature_norm": 0.8, "budget": PrivacyBudget(epsilon=5.0, delta=DELTA), "neighbours": "replace_one"}
    planned = planned_whitening(300, 6, settings["budget"], neighbours="replace_one")
    assert planned is not None
    rows, made, _ = whitened_rows(table, replace(planned, covariance=True), **settings, generator=np.random.default_rng(0))
    assert rows.dtype == dtype
    np.testing.assert_array_equal(table, before)
    tolerance = 1e-9 if dtype == np.float64 else 2e-3
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(rows, by_hand(table, made, 0.8), rtol=tolerance, atol=tolerance)


def test_what_it_costs_does_not_depend_on_the_released_norm() -> None:
    rows, labels = narrow(500)
    fitted = [model(feature_norm="auto").fit(scale * rows, labels) for scale in (1.0, 0.03, 17.0)]
    assert all(one.whitened_ is not None for one in fitted)
    assert len({one.feature_norm_ for one in fitted}) == 3
    assert len({tuple(one.statement_.planned.delta(level) for level in (0.1, 1.0, 3.0)) for one in fitted}) == 1


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


def test_it_is_refused_where_it_cannot_be_had() -> None:
    rows, labels = narrow(100)
    with pytest.raises(InputError, match="sparse"):
        model(whiten=True).fit(sparse.csr_array(rows), labels)
    with pytest.raises(InputError, match="intercept"):
        model(whiten=True, fit_intercept=False).fit(rows, labels)
    with pytest.raises(InputError, match="one user"):
        model(whiten=True).fit(rows, labels, users=np.arange(100) // 2)
    for wrong in ("yes", 1, None, np.array(["auto"])):
        with pytest.raises(InputError, match="whiten"):
            model(whiten=wrong).fit(rows, labels)


@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression, LinearSVC])
def test_classes_that_differ_little_about_a_far_mean_are_told_apart(kind: Any) -> None:
    rows, labels = narrow(6000)
    given: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": DELTA,
        "feature_norm": 1.0,
        "classes": [0, 1],
        "random_state": 0,
        "seed_noise": True,
        "neighbours": "replace_one",
    }
    without, whitened = (build(kind, whiten=choice, **given).fit(rows, labels).score(rows, labels) for choice in (False, True))
    assert whitened > 0.85
    assert whitened > without + 0.01
