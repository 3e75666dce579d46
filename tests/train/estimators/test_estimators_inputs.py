"""What comes in: sparse tables, weights, enormous rows; and what is certified of it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from private_cases import build, fitted, two_blobs
from scipy import sparse
from scipy.optimize import minimize

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck
from lethe.certificates.certificate import Certificate
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators import LinearRegression, LinearSVC, LogisticRegression
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.inputs.facts import CONSTANT
from lethe.estimators.inputs.ranges import RangeEndWarning
from lethe.estimators.inputs.records import Records
from lethe.estimators.inputs.tables import LARGEST_ENTRY, readable
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses import Logistic, Softmax

SEEDED = {"random_state": 0, "seed_noise": True}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["cyclic", "objective_perturbation"])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_equals_dense(name: str, make: type, dtype: type) -> None:
    X, y = two_blobs()
    X = np.where(np.abs(X) < 1.0, 0.0, X).astype(dtype)
    dense, thin = (
        LogisticRegression(feature_norm="auto", options=EstimatorOptions(mechanism=name), **SEEDED).fit(table, y) for table in (X, make(X))
    )
    np.testing.assert_allclose(dense.coef_, thin.coef_, rtol=1e-6)
    np.testing.assert_allclose(dense.decision_function(X), thin.decision_function(make(X)), rtol=1e-4)


@pytest.mark.parametrize("intercept", [True, False])
def test_gradients_of_records_are_those_of_scaled_rows(intercept: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 4)) * rng.lognormal(sigma=2.0, size=(50, 1)), rng.integers(3, size=50).astype(float)
    order, weights = rng.permutation(50), rng.random(50)
    records = Records(X, y, loss=Softmax(feature_norm=1.0, classes=3), feature_norm=1.5, intercept=intercept, weights=weights, order=order)
    W = rng.standard_normal((4 + intercept, 3))
    rows = X / np.maximum(1.5, np.linalg.norm(X, axis=1))[:, None]
    if intercept:
        rows = np.hstack([rows, np.full((50, 1), CONSTANT)])
    loss = Softmax(feature_norm=1.0, classes=3)
    for batch in (slice(0, 50), slice(10, 30), np.array([3, 9, 20]), np.array([], dtype=np.intp)):
        places = order[batch]
        wanted = rows[places].T @ (weights[places, None] * loss.slopes(rows[places] @ W, y[places]))
        np.testing.assert_allclose(records.gradient_sum(W, batch), wanted, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1.0, 1e150, 1e200])
def test_no_row_is_longer_than_one(scale: float) -> None:
    rng = np.random.default_rng(1)
    X = scale * rng.standard_normal((20, 5))
    records = Records(X, np.zeros(20), loss=Logistic(feature_norm=1.0), feature_norm=2.0, intercept=False)
    rows = records.dense()
    assert np.isfinite(rows).all()
    assert max(np.linalg.norm(row.astype(np.longdouble)) for row in rows) <= 1.0


def test_entries_stored_twice_count_together() -> None:
    twice = sparse.csr_array((np.array([3.0, 3.0, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    records = Records(twice, np.zeros(2), loss=Logistic(feature_norm=1.0), feature_norm=1.0, intercept=False)
    np.testing.assert_allclose(records.dense(), np.eye(2), atol=1e-12)
    gradient = records.gradient_sum(np.zeros((2, 1)), slice(0, 2))
    np.testing.assert_allclose(gradient, [[0.5], [0.5]])


def test_without_noise_a_minimiser_is_scikit_learns_objective() -> None:
    X, y = two_blobs(records=100)
    quiet = {"C": 0.02, "epsilon": 1e6, "delta": 1e-5, "feature_norm": 100.0}
    model = build(LogisticRegression, **quiet, **SEEDED, options=EstimatorOptions(mechanism="objective_perturbation")).fit(X, y)

    def objective(w: np.ndarray) -> float:
        scores = X @ w[:-1] + w[-1]
        # The intercept is the weight of a constant feature of size R.
        return float(np.logaddexp(0.0, (1 - 2 * y) * scores).sum() + 0.5 / 0.02 * (w[:-1] @ w[:-1] + (w[-1] / 100.0) ** 2))

    wanted = minimize(objective, np.zeros(4), tol=1e-12).x
    assert "ridge 5e-05 " in model.privacy_report_  # 1 / (C n R^2): what was asked for, and no more was taken
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), wanted, atol=0.01)


def test_without_noise_a_hinge_is_its_objective() -> None:
    X, y = two_blobs(records=100)
    quiet = {"epsilon": 1e6, "delta": 1e-5, "feature_norm": 100.0, "random_state": 0, "seed_noise": True}
    model = LinearSVC(C=0.02, width=0.3, fit_intercept=False, options=EstimatorOptions(mechanism="output_perturbation"), **quiet)
    model.set_params(epsilon=1e12).fit(X, y)

    def objective(w: np.ndarray) -> float:
        short = 1.0 - (2 * y - 1) * (X @ w)
        rounded = np.where(np.abs(short) <= 0.3, (short + 0.3) ** 2 / 1.2, np.maximum(short, 0.0))
        return float(rounded.sum() + 0.5 / 0.02 * w @ w)

    np.testing.assert_allclose(model.coef_[0], minimize(objective, np.zeros(3), tol=1e-12).x, atol=0.01)


def test_weights_scale_losses_within_their_bound() -> None:
    X, y = two_blobs()
    quiet = {"feature_norm": 4.0, "mechanism": "full_batch", "passes": 20, "epsilon": 1e8, "delta": 1e-5, "random_state": 0}
    weights = np.where(np.arange(400) < 200, 1.0, 0.0)
    some = build(LogisticRegression, **quiet).fit(X, y, sample_weight=weights)
    # C times the sum of weighted losses, as scikit-learn has it; the bound on weights is no part of it.
    halved = build(LogisticRegression, **quiet, options=EstimatorOptions(max_weight=2.0), C=0.5).fit(X, y, sample_weight=2.0 * weights)
    np.testing.assert_allclose(some.coef_, halved.coef_, rtol=1e-3)
    moved = X.copy()
    moved[200:] *= -1.0  # records of weight 0 say nothing
    np.testing.assert_allclose(build(LogisticRegression, **quiet).fit(moved, y, sample_weight=weights).coef_, some.coef_, rtol=1e-3)
    for bad in (weights + 0.5, -weights, weights * np.nan, weights[:-1]):
        with pytest.raises(ValueError, match="sample_weight"):
            build(LogisticRegression, **quiet).fit(X, y, sample_weight=bad)
    with pytest.raises(InputError, match="weights"):
        fitted().set_params(options__mechanism="objective_perturbation").fit(X, y, sample_weight=weights)


HUGE = [[1.7e308, -1.7e308], [1.7e308, 1.7e308], [1e160, -1e155], [1e308, 0.0]]
REPEATED = {"random_state": 0, "seed_noise": True, "delta": 1e-5}


def table_with(last: list[float], records: int = 200) -> np.ndarray:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (records, 2))
    rows[-1] = last
    return rows


def stored_twice(last: list[tuple[int, float]], records: int = 1000) -> Any:
    """Rows (1, 0), and a last one given by its entries; the table believes that every column is stored once."""
    columns, entries = zip(*last, strict=True) if last else ((), ())
    data, places = np.array([1.0] * (records - 1) + list(entries)), np.array([0] * (records - 1) + list(columns))
    table = sparse.csr_array((data, places, np.array([*range(records), records - 1 + len(last)])), shape=(records, 2))
    table.has_canonical_format = True
    return table


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("last", HUGE)
def test_huge_rows_keep_their_direction_and_the_others_their_entries(make: Any, last: list[float]) -> None:
    rows = table_with(last)
    found = readable(make(rows))
    dense = found if isinstance(found, np.ndarray) else found.toarray()
    np.testing.assert_array_equal(dense[:-1], rows[:-1])
    assert np.abs(dense[-1]).max() == pytest.approx(LARGEST_ENTRY)
    np.testing.assert_allclose(dense[-1] / LARGEST_ENTRY, rows[-1] / np.abs(rows[-1]).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_others_are_not_copied(make: Any, dtype: type) -> None:
    table = make(table_with([1e30, 0.0]).astype(dtype))
    found = readable(table)
    assert found is table if isinstance(table, np.ndarray) else np.shares_memory(found.data, table.data)


@pytest.mark.parametrize(
    ("last", "sums"),
    [
        ([(0, 1e300), (0, -1e300)], [0.0, 0.0]),
        ([(0, 1e300), (1, 0.5), (0, -1e300)], [0.0, 0.5]),
        ([(1, 1.7e308), (1, 1.7e308)], [0.0, LARGEST_ENTRY]),
        ([(0, 0.25), (0, 0.25)], [0.5, 0.0]),
    ],
)
def test_columns_stored_twice_are_added_up_first(last: list[tuple[int, float]], sums: list[float]) -> None:
    """A stale mark does not help, and the caller's table is left alone."""
    table = stored_twice(last)
    before = table.data.copy()
    np.testing.assert_allclose(readable(table).toarray()[-1], sums)
    np.testing.assert_array_equal(table.data, before)
    nothing, one = (
        Records(readable(each), np.ones(1000), loss=Logistic(feature_norm=1.0), feature_norm=1.0, intercept=False)
        for each in (stored_twice([]), table)
    )
    weights = np.zeros((2, 1))
    moved = one.gradient_sum(weights, slice(0, 1000)) - nothing.gradient_sum(weights, slice(0, 1000))
    assert np.linalg.norm(moved) <= 1.0


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mechanism", ["cyclic", "pass_ends", "poisson", "full_batch", "objective_perturbation"])
@pytest.mark.parametrize("last", HUGE[:2])
def test_a_fit_does_not_tell_that_a_record_is_huge(mechanism: str, last: list[float]) -> None:
    rows = table_with(last)
    labels = (rows[:, 0] > 0).astype(int)
    model = LogisticRegression(**REPEATED, options=EstimatorOptions(mechanism=mechanism), feature_norm=1.0, classes=[0, 1], C=1e3).fit(
        rows, labels
    )
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.decision_function(rows)).all()
    np.testing.assert_allclose(
        model.coef_,
        LogisticRegression(**REPEATED, options=EstimatorOptions(mechanism=mechanism), feature_norm=1.0, classes=[0, 1], C=1e3)
        .fit(np.where(np.abs(rows) > 2.0, np.sign(rows) * 1e100 * np.abs(last / np.max(np.abs(last))), rows), labels)
        .coef_,
        rtol=1e-9,
    )


NAMES = tuple(name for name in MECHANISMS if name not in ("auto", "sgd", "adassp", "poisson"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("name", [*NAMES, "poisson"])
def test_every_mechanism_meets_the_target_and_declares_nothing(name: str, neighbours: str) -> None:
    model = fitted(mechanism=name, neighbours=neighbours, epsilon=0.8, delta=1e-4)
    assert model.mechanism_ == name
    assert 0.79 < model.epsilon_ <= 0.8
    assert model.delta_ == 1e-4
    assert {finding.evidence for finding in model.certificate_.findings} <= {"checked", "enforced"}
    assert {finding.status for finding in model.certificate_.findings} == {"holds"}
    assert model.statement_.neighbours == neighbours
    if model.run_ is None:
        assert isinstance(model.certificate_, Statement)
    else:
        assert isinstance(model.certificate_, Certificate)
        assert model.run_.release == ("all" if name in ("correlated", "cyclic_poisson_correlated") else "last")
        assert certify(model.run_, 1e-4).epsilon == model.certificate_.epsilon == model.epsilon_
        recheck(model.certificate_)


@pytest.mark.parametrize("name", ["cyclic", "objective_perturbation", "output_perturbation"])
def test_the_private_feature_norm_is_accounted_for(name: str) -> None:
    model = fitted(mechanism=name, feature_norm="auto", epsilon=1.0)
    training = model.certificate_ if model.run_ is None else certify(model.run_, model.delta_)
    alone = certify(model.run_, model.delta_).epsilon if model.run_ is not None else None
    assert isinstance(training, Statement) or alone < model.epsilon_
    assert isinstance(model.certificate_, Statement)
    assert 0.98 < model.epsilon_ <= 1.0
    assert "feature norm" in model.privacy_report_
    # What the parts cost by another accountant, which knows nothing of how they were joined.
    if model.run_ is not None:
        # No ridge is counted on: how strong it is on the scaled rows follows from the norm, which one time in seventy was so small that
        # the run alone costs visibly less.
        run = certify(model.run_.replace(regulariser=None), model.delta_)
        norm = math.sqrt(mu_of(model.certificate_.guarantee) ** 2 - mu_of(run.guarantee) ** 2)
        total = mu_of(fitted(mechanism=name, epsilon=1.0).certificate_.guarantee)
        assert 0.05 < (norm / total) ** 2 < 0.15
        assert norm == pytest.approx(30.0 / 400.0, rel=1e-9)  # documented: n mu is 30


@pytest.mark.parametrize(
    "options", [{"options": EstimatorOptions(whiten=False)}, {"C": np.inf}]
)  # how strong a ridge is on whitened rows follows from their release
def test_the_choice_looks_at_public_facts_only(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    X, y = two_blobs()
    given: dict[str, Any] = {"feature_norm": 4.0, "classes": [0, 1], **options}
    models = [LogisticRegression(**given).fit(*data) for data in ((X, y), (rng.random((400, 3)), y[::-1] * 0))]
    why = [model.privacy_report_.split("Why this mechanism")[1] for model in models]
    assert why[0] == why[1]
    assert models[0].mechanism_ == models[1].mechanism_


@pytest.mark.sampled(4)
@pytest.mark.parametrize("epsilon", [2e-3, 1e-7, 1e-12])
@pytest.mark.parametrize("given", [{}, {"feature_norm": 4.0}])
@pytest.mark.parametrize("make", [LogisticRegression, LinearRegression])
def test_fewer_records_than_one_over_epsilon_teach_nothing(make: type, given: dict[str, float], epsilon: float) -> None:
    X, y = two_blobs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeEndWarning)
        model = make(epsilon=epsilon, **given).fit(X, y)
    assert model.mechanism_ == "zeros"
    assert model.epsilon_ <= epsilon
    assert "fewer than 1/epsilon" in model.privacy_report_
