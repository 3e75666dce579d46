"""What comes in: sparse tables, weights, users, enormous rows; what a fit without noise comes to; and what is certified of it."""

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from private_cases import build, fitted, two_blobs
from scipy import sparse, special
from scipy.optimize import minimize
from sklearn.metrics import log_loss

import lethe
import lethe.estimators as private
from lethe.accounting.certify import certify
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.inputs.ranges import RangeEndWarning
from lethe.estimators.options import EstimatorOptions

SEEDED = {"random_state": 0, "seed_noise": True}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["cyclic", "objective_perturbation"])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_equals_dense(name: str, make: type, dtype: type) -> None:
    X, y = two_blobs()
    X = np.where(np.abs(X) < 1.0, 0.0, X).astype(dtype)
    dense, thin = (
        private.LogisticRegression(feature_norm="auto", options=EstimatorOptions(mechanism=name), **SEEDED).fit(table, y)
        for table in (X, make(X))
    )
    np.testing.assert_allclose(dense.coef_, thin.coef_, rtol=1e-6)
    np.testing.assert_allclose(dense.decision_function(X), thin.decision_function(make(X)), rtol=1e-4)


def test_weights_scale_losses_within_their_bound() -> None:
    X, y = two_blobs()
    quiet = {"feature_norm": 4.0, "mechanism": "full_batch", "passes": 20, "epsilon": 1e8, "delta": 1e-5, "random_state": 0}
    weights = np.where(np.arange(400) < 200, 1.0, 0.0)
    some = build(private.LogisticRegression, **quiet).fit(X, y, sample_weight=weights)
    # C times the sum of weighted losses, as scikit-learn has it; the bound on weights is no part of it.
    halved = build(private.LogisticRegression, **quiet, options=EstimatorOptions(max_weight=2.0), C=0.5).fit(
        X, y, sample_weight=2.0 * weights
    )
    np.testing.assert_allclose(some.coef_, halved.coef_, rtol=1e-3)
    moved = X.copy()
    moved[200:] *= -1.0  # records of weight 0 say nothing
    np.testing.assert_allclose(build(private.LogisticRegression, **quiet).fit(moved, y, sample_weight=weights).coef_, some.coef_, rtol=1e-3)


@pytest.mark.parametrize("name", ["cyclic", "objective_perturbation", "output_perturbation"])
def test_the_private_feature_norm_is_accounted_for(name: str) -> None:
    model = fitted(mechanism=name, feature_norm="auto", epsilon=1.0)
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
    models = [private.LogisticRegression(**given).fit(*data) for data in ((X, y), (rng.random((400, 3)), y[::-1] * 0))]
    why = [model.privacy_report_.split("Why this mechanism")[1] for model in models]
    assert why[0] == why[1]
    assert models[0].mechanism_ == models[1].mechanism_


@pytest.mark.sampled(4)
@pytest.mark.parametrize("epsilon", [2e-3, 1e-7, 1e-12])
@pytest.mark.parametrize("given", [{}, {"feature_norm": 4.0}])
@pytest.mark.parametrize("make", [private.LogisticRegression, private.LinearRegression])
def test_fewer_records_than_one_over_epsilon_teach_nothing(make: type, given: dict[str, float], epsilon: float) -> None:
    X, y = two_blobs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RangeEndWarning)
        model = make(epsilon=epsilon, **given).fit(X, y)
    assert model.mechanism_ == "zeros"
    assert model.epsilon_ <= epsilon
    assert "fewer than 1/epsilon" in model.privacy_report_


RANDOM = np.random.default_rng(0)
ROWS = 600
TABLE = RANDOM.normal(size=(ROWS, 3)) / 3
LABELS = (TABLE[:, 0] > 0).astype(int)
IDS = RANDOM.integers(200, size=ROWS)
PUBLIC: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-4, "feature_norm": 1.0}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "model",
    [
        private.LogisticRegression(**PUBLIC, classes=[0, 1], options=EstimatorOptions(rows_per_user=2)),
        private.SoftmaxRegression(**PUBLIC, classes=[0, 1]),
        private.LinearSVC(**PUBLIC, classes=[0, 1]),
        private.Ridge(**PUBLIC, target_bound=1.0, options=EstimatorOptions(mechanism="cyclic")),
        private.HuberRegressor(**PUBLIC, target_bound=1.0),
        private.PoissonRegressor(**PUBLIC, target_bound=1.0),
    ],
)
def test_what_is_stated_is_about_users(model: Any, tmp_path: Path) -> None:
    model.fit(TABLE, LABELS, users=IDS)
    people = len(np.unique(IDS))
    assert model.n_samples_seen_ == people
    assert (model.run_.unit, model.run_.records) == ("user", people)
    stated = model.statement_
    assert (stated.unit, stated.records) == ("user", people)
    assert any(finding.name == "users" and finding.evidence == "declared" for finding in stated.findings)
    assert f"for one user's contribution set to zero; the number of users, {people}, is public" in model.privacy_report_
    assert "zero out one user" in stated.explain()
    assert f"{people} users" in model._repr_html_()
    stated.save(tmp_path / "statement.json")
    again = Statement.load(tmp_path / "statement.json")
    assert again.unit == "user"
    assert lethe.verify(again).follows.yes
    assert private.privacy_of(model).unit == "user"
    certificate = model.certificate_
    assert certificate.run.unit == "user"
    assert certificate.seal.holds
    assert certificate.epsilon <= 2.0
    assert lethe.verify(certificate).follows.yes
    assert lethe.total([stated], 1e-4).unit == "user"


def test_long_rows_are_projected_in_prediction_as_in_training() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2_000, 3))
    model = private.LinearSVC(feature_norm=1.5, options=EstimatorOptions(mechanism="pass_ends")).fit(rows, (rows[:, 0] > 0).astype(int))
    projected = rows * np.minimum(1.0, 1.5 / np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(model.decision_function(rows), projected @ model.coef_[0] + model.intercept_[0], atol=1e-12)
    np.testing.assert_allclose(model.decision_function(sparse.csr_array(rows)), model.decision_function(rows), atol=1e-12)
    np.testing.assert_allclose(model.decision_function(np.zeros((1, 3))), model.intercept_)


def test_without_noise_a_minimiser_is_the_objective_of_its_class() -> None:
    X, y = two_blobs(records=100)
    signs, quiet = 2 * y - 1, {"C": 0.02, "delta": 1e-5, "feature_norm": 100.0, **SEEDED}

    def logistic(w: np.ndarray) -> float:
        # The intercept is the weight of a constant feature of size R.
        losses = np.logaddexp(0.0, -signs * (X @ w[:-1] + w[-1]))
        return float(losses.sum() + 0.5 / 0.02 * (w[:-1] @ w[:-1] + (w[-1] / 100.0) ** 2))

    def hinge(w: np.ndarray) -> float:
        short = 1.0 - signs * (X @ w)
        rounded = np.where(np.abs(short) <= 0.3, (short + 0.3) ** 2 / 1.2, np.maximum(short, 0.0))
        return float(rounded.sum() + 0.5 / 0.02 * w @ w)

    model = build(private.LogisticRegression, **quiet, epsilon=1e6, mechanism="objective_perturbation").fit(X, y)
    assert "ridge 5e-05 " in model.privacy_report_  # 1 / (C n R^2): what was asked for, and no more was taken
    *slopes, constant = minimize(logistic, np.zeros(4), tol=1e-12).x
    np.testing.assert_allclose(model.coef_[0], slopes, atol=0.01)
    assert 0.0 < np.sign(constant) * (model.intercept_[0] - constant) < 0.3  # the ridge drew it towards 0
    svc = build(private.LinearSVC, **quiet, width=0.3, fit_intercept=False, epsilon=1e12, mechanism="output_perturbation").fit(X, y)
    np.testing.assert_allclose(svc.coef_[0], minimize(hinge, np.zeros(3), tol=1e-12).x, atol=0.01)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mechanism", ["cyclic", "pass_ends", "poisson", "full_batch", "objective_perturbation"])
@pytest.mark.parametrize("last", [[1.7e308, -1.7e308], [1.7e308, 1.7e308]])
def test_a_fit_does_not_tell_that_a_record_is_huge(mechanism: str, last: list[float]) -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2))
    labels = (rows[:, 0] > 0).astype(int)
    huge, large = rows.copy(), rows.copy()
    huge[-1], large[-1] = last, np.sign(last) * 1e100
    asked: dict[str, Any] = {"mechanism": mechanism, "feature_norm": 1.0, "classes": [0, 1], "C": 1e3, "delta": 1e-5, **SEEDED}
    models = [build(private.LogisticRegression, **asked).fit(table, labels) for table in (huge, large)]
    assert np.isfinite(models[0].decision_function(huge)).all()
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-9)


def test_weights_of_classes_are_those_of_their_records() -> None:
    """The same run, noise and weights as with a weight a record; the report names them, and only runs train so."""
    X, y = two_blobs(records=200)
    asked: dict[str, Any] = {"mechanism": "pass_ends", "feature_norm": 3.0, "classes": [0, 1], "delta": 1e-5, **SEEDED}
    by_class = build(private.LogisticRegression, **asked, class_weight={0: 0.5, 1: 2.0}, max_weight=3.0).fit(
        X, y, sample_weight=[3.0] * 200
    )
    one_by_one = build(private.LogisticRegression, **asked, max_weight=6.0).fit(X, y, sample_weight=np.where(y == 1, 6.0, 1.5))
    np.testing.assert_allclose(by_class.coef_, one_by_one.coef_, rtol=1e-9)
    assert "class_weight = {0: 0.5, 1: 2.0}" in by_class.privacy_report_
    with pytest.raises(InputError, match="are a run's"):
        build(private.LogisticRegression, **(asked | {"mechanism": "output_perturbation"}), class_weight={1: 4.0}).fit(X, y)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mechanism", ["objective_perturbation", "output_perturbation", "full_batch", "pass_ends", "poisson", "auto"])
def test_probabilities_of_a_rare_class_are_true(mechanism: str) -> None:
    """The mean is the rate, and the log-loss below that of the constant rate."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (24_000, 8))
    y = (rng.random(24_000) < special.expit(X[:, 0] - X[:, 1] - 2.9)).astype(int)
    model = build(private.LogisticRegression, mechanism=mechanism, epsilon=3.0, delta=1e-6, feature_norm=1.7, classes=[0, 1], **SEEDED)
    chances, rest = model.fit(X[:8000], y[:8000]).predict_proba(X[8000:])[:, 1], y[8000:]
    assert chances.mean() == pytest.approx(rest.mean(), rel=0.15)
    assert log_loss(rest, chances) < log_loss(rest, np.full(16_000, rest.mean())) - 0.01
