"""What comes in: sparse tables, weights, labels, and refusals that say what to do."""

import numpy as np
import pytest
from private_cases import build, fitted, two_blobs
from scipy import sparse
from scipy.optimize import minimize

from lethe.errors import InputError
from lethe.estimators import LogisticRegression
from lethe.estimators.inputs.facts import CONSTANT
from lethe.estimators.inputs.records import Records
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses import Logistic, Softmax

SEEDED = {"random_state": 0, "seed_noise": True}


@pytest.mark.sampled(5)
@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_class_may_be_missing_if_it_is_declared() -> None:
    X, y = two_blobs()
    model = LogisticRegression(classes=["no", "perhaps", "yes"], feature_norm=4.0).fit(X, np.where(y == 1, "yes", "no"))
    assert model.classes_.tolist() == ["no", "perhaps", "yes"]
    assert "given as public" in model.privacy_report_
    assert "declared to be public" in fitted().privacy_report_
    only = LogisticRegression(classes=[0, 1], feature_norm=4.0).fit(X, y * 0)
    assert only.classes_.tolist() == [0, 1]
    with pytest.raises(InputError, match="1 class"):
        LogisticRegression(feature_norm=4.0).fit(X, y * 0)
    with pytest.raises(InputError, match="public list"):
        LogisticRegression(classes=[0, 2], feature_norm=4.0).fit(X, y)
    with pytest.raises(InputError, match="at least two"):
        LogisticRegression(classes=[1, 1], feature_norm=4.0).fit(X, y)


@pytest.mark.slow
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
