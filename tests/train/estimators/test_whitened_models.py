"""Models whose rows are whitened or centred within their fit: what it costs, what is trained on, and when it is done."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from excused_checks import SEEDED
from private_cases import build, two_blobs
from scipy import sparse

import lethe
from lethe.accounting.recheck import recheck_statement
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators import HuberRegressor, LinearRegression, LogisticRegression, Ridge
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.models import whitened_rows as whitening
from lethe.estimators.models.whitened_rows import (
    COVARIANCE_SHARE,
    MEAN_SHARE,
    PlannedWhitening,
    WhitenedRows,
    planned_whitening,
    whitened_rows,
)
from lethe.estimators.options import EstimatorOptions
from lethe.mechanisms.moments import noisy_mean
from lethe.run.regularisers import L2
from lethe.run.run import Neighbours

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


def test_one_record_of_any_length_moves_the_fit_no_further_than_one_at_the_bound() -> None:
    rows, labels = narrow(200)
    rows[3] /= np.linalg.norm(rows[3])
    far = rows.copy()
    far[3] *= 1e8
    one, other = (model(whiten=True).fit(table, labels) for table in (rows, far))
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6, atol=1e-9)


REACH = 1.2  # as benchmarks/measurements/estimators.md says


def narrow_targets(records: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm about 1 that lie about a mean far from 0, and differ little; targets about 10."""
    rng = np.random.default_rng(seed)
    away = rng.standard_normal((records, 4))
    return (0.9 + 0.05 * away) / 2.0, 10.0 + 0.3 * (away @ np.array([1.0, -1.0, 1.0, -1.0]) + 0.5 * rng.standard_normal(records))


def regression_model(kind: Any = LinearRegression, **changes: Any) -> Any:
    return build(
        kind, **{"epsilon": 2.0, "delta": DELTA, "feature_norm": 1.0, "target_bound": (8.0, 12.0), "neighbours": "replace_one", **changes}
    )


@pytest.mark.parametrize(
    ("kind", "mechanism"), [(LinearRegression, "adassp"), (Ridge, "output_perturbation"), (HuberRegressor, "pass_ends")]
)
@pytest.mark.parametrize("bound", ["auto", (8.0, 12.0)])
def test_predictions_are_those_of_rows_whitened_by_hand(monkeypatch: pytest.MonkeyPatch, bound: Any, kind: Any, mechanism: str) -> None:
    """Moments that cost nothing, and the same rows whitened by hand: the same noise and predictions, on a ball that reaches further."""
    rows, values = narrow_targets(600)
    rows[:100] *= 7.0  # which are projected
    spread = np.array([[9.0, 2.0, 0.0, 0.0], [2.0, 7.0, 1.0, 0.0], [0.0, 1.0, 8.0, 3.0], [0.0, 0.0, 3.0, 9.0]])
    made = WhitenedRows(mean=np.array([0.3, 0.2, 0.4, 0.25]), matrix=spread, norm=1.7)
    free = replace(moments(600).cost, guarantee=GDP(0.0))
    monkeypatch.setattr(whitening, "planned_statement", lambda *_, **__: free)
    monkeypatch.setattr(whitening, "_by_covariance", lambda *_: (made, free))
    seeded: dict[str, Any] = {"mechanism": mechanism, "target_bound": bound, **SEEDED}
    fitted = regression_model(kind, whiten=True, feature_norm=1.5, **seeded).fit(rows, values)
    assert fitted.whitened_.norm == pytest.approx(REACH * 1.7)
    unit = (rows * np.minimum(1.0 / 1.5, 1.0 / np.linalg.norm(rows, axis=1, keepdims=True)) - made.mean) @ spread
    by_hand = regression_model(kind, whiten=False, feature_norm=REACH * 1.7, **seeded).fit(unit, values)
    low, high = fitted.target_range_
    expected = unit @ by_hand.coef_ + by_hand.intercept_
    assert np.mean((expected > low) & (expected < high)) > 0.5
    np.testing.assert_allclose(fitted.predict(rows), np.clip(expected, low, high), rtol=1e-7)
    short = rows[100:]
    np.testing.assert_allclose(fitted.predict(short), np.clip(short @ fitted.coef_ + fitted.intercept_, low, high), rtol=1e-12)


WIDER = np.random.default_rng(0).standard_normal((1000, 1025)) / 40.0


@pytest.mark.parametrize(
    ("done", "given", "fit"),
    [
        (True, {}, {}),
        (True, {"feature_norm": "auto"}, {}),
        (False, {"whiten": False}, {}),
        (False, {"mechanism": "full_batch"}, {}),
        (False, {"fit_intercept": False}, {}),
        (False, {"epsilon": 0.05}, {}),
        (False, {}, {"users": np.arange(1000) // 2}),
        (False, {}, {"X": WIDER}),
        (False, {}, {"X": sparse.csr_array(narrow(1000)[0])}),
    ],
)
def test_when_rows_are_whitened(done: bool, given: dict[str, Any], fit: dict[str, Any]) -> None:
    """Of classes and of numbers alike."""
    rows, labels = narrow(1000)
    asked: dict[str, Any] = {"batches": "full", "passes": 2, **SEEDED} | given
    for one, targets in ((model(**asked), labels), (regression_model(**asked), 10.0 + labels)):
        assert (one.fit(**{"X": rows, "y": targets, **fit}).whitened_ is not None) == done


def test_a_regression_s_ball_reaches_further_and_weights_do_not_matter() -> None:
    rows, values = narrow_targets(600)
    quick: dict[str, Any] = {"batches": "full", "passes": 2, **SEEDED}
    one = regression_model(**quick).fit(rows, values).whitened_
    weighted = regression_model(**quick).fit(rows, values, sample_weight=np.linspace(0.0, 1.0, 600)).whitened_
    np.testing.assert_array_equal(weighted.mean, one.mean)  # what is released of rows is the same whatever their weights
    classes: Any = model(neighbours="replace_one", **quick).fit(rows, (values > 10.0).astype(int)).whitened_
    assert one.norm == pytest.approx(REACH * classes.norm, rel=0.05)


def moments(records: int) -> whitening.PlannedWhitening:
    planned = planned_whitening(records, 4, PrivacyBudget(epsilon=2.0, delta=DELTA, neighbours="replace_one"), regression=True)
    assert planned is not None
    assert planned.covariance
    return planned


BUDGET = PrivacyBudget(epsilon=1.0, delta=1e-5)
COMMON: dict[str, Any] = {"feature_norm": 4.0, "epsilon": 1.0, "delta": 1e-5}


def mean_alone(neighbours: Neighbours = "replace_one") -> PlannedWhitening:
    """What is planned where a covariance would drown in its noise."""
    planned = planned_whitening(1400, 64, replace(BUDGET, neighbours=neighbours))
    assert planned is not None
    assert not planned.covariance
    return planned


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_what_rows_share_is_taken_off_and_the_rest_is_of_length_one(share: float) -> None:
    """Unit rows whose mean has the squared norm `share`."""
    rows = np.random.default_rng(4).standard_normal((50_000, 10))
    rows[:, 0] = 0.0
    rows *= math.sqrt(1.0 - share) / np.linalg.norm(rows, axis=1, keepdims=True) * (1.0 - 1e-12)
    rows[:, 0] = math.sqrt(share)
    left, made, _ = whitened_rows(rows, mean_alone("zero_out"), feature_norm=1.0, budget=BUDGET, generator=np.random.default_rng(1))
    assert made.norm == pytest.approx(math.sqrt(1.0 - share), rel=0.02)
    np.testing.assert_allclose(made.mean, rows.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(left, rows - made.mean, atol=1e-12)
    assert np.mean(np.square(left / made.norm).sum(axis=1)) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("neighbours", "other"), [("zero_out", 0.0), ("replace_one", -1.0)])
def test_the_mean_costs_what_its_noise_hides_of_the_worst_record(neighbours: Neighbours, other: float) -> None:
    """Exact: under the same noise the means of two neighbours differ by one record alone; how large the noise is, zeros say."""
    count, share = 20_000, BUDGET.share(MEAN_SHARE)

    def released(first: float) -> tuple[np.ndarray, Statement]:
        rows = np.zeros((count, 3))
        rows[0, 0] = first
        return noisy_mean(rows, norm=1.0, target=share, neighbours=neighbours, generator=np.random.default_rng(5))

    here, statement = released(1.0 - 1e-12)
    moved = float(np.linalg.norm(here - released(other * (1.0 - 1e-12))[0])) * count
    noise_std = float(released(0.0)[0][0]) * count / float(np.random.default_rng(5).standard_normal(3)[0])
    stated, planned = statement.planned, mean_alone(neighbours).cost.guarantee
    assert isinstance(stated, GDP)
    assert isinstance(planned, GDP)
    assert moved / noise_std == pytest.approx(stated.mu, rel=1e-6)
    assert stated.mu <= planned.mu <= share.mu
    fresh = noisy_mean(np.zeros((9, 3)), norm=1.0, target=share, neighbours=neighbours, generator=None)[1]
    recheck_statement(fresh)


@pytest.mark.parametrize("release", ["all", "last"])
def test_scores_are_those_of_the_centred_rows(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """A mean that costs nothing, and the same rows centred by hand: the same run, noise and scores."""
    rows, labels = two_blobs(300)
    made = WhitenedRows(mean=np.array([0.2, -0.1, 0.3]), matrix=None, norm=0.7)
    free = replace(mean_alone().cost, guarantee=GDP(0.0))
    monkeypatch.setattr(whitening, "planned_statement", lambda *_, **__: free)
    monkeypatch.setattr(whitening, "_by_mean", lambda *_: (made, free))
    seeded: dict[str, Any] = {**COMMON, "C": math.inf, "release": release, "mechanism": "correlated", "neighbours": "replace_one", **SEEDED}
    model = build(LogisticRegression, options=EstimatorOptions(whiten=True), **seeded).fit(rows, labels)
    assert model.whitened_ is not None
    assert (model.whitened_.mean is made.mean, model.whitened_.norm) == (True, 0.7)
    unit = rows * np.minimum(1.0 / 4.0, 1.0 / np.linalg.norm(rows, axis=1, keepdims=True)) - made.mean
    by_hand = build(LogisticRegression, options=EstimatorOptions(whiten=False), **(seeded | {"feature_norm": 0.7})).fit(unit, labels)
    np.testing.assert_allclose(model.decision_function(rows), by_hand.decision_function(unit), rtol=1e-9, atol=1e-9)


def test_the_rule_looks_at_public_facts_alone() -> None:
    """A regression spends less on moments, and releases no mean alone."""

    def decided(records: int, columns: int, *, regression: bool = False, budget: PrivacyBudget = BUDGET) -> bool | None:
        planned = planned_whitening(records, columns, budget, regression=regression)
        return None if planned is None else planned.covariance

    assert [decided(records, 64) for records in (100, 1400, 20_000)] == [None, False, True]
    assert [decided(1400, columns) for columns in (4, 64, 2000)] == [True, False, None]
    swapped = PrivacyBudget(epsilon=1.0, delta=DELTA, neighbours="replace_one")
    for regression, expected in ((False, [None, False, True, True]), (True, [None, None, None, True])):
        assert [decided(one, 20, regression=regression, budget=swapped) for one in (300, 1000, 1500, 2000)] == expected
