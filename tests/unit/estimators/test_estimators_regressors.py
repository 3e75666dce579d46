"""Private regression: the objective without noise, certificates, what each mechanism may train, refusals, scikit-learn's checks."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model
from excused_checks import EXCUSED, SEEDED
from gaussian_guarantees import mu_of
from private_cases import build
from scipy import sparse
from scipy.optimize import minimize
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.errors import InputError
from lethe.estimators import ElasticNet, HuberRegressor, Lasso, LinearRegression, Ridge
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.models.regressors import PrivateRegressor
from lethe.estimators.options import EstimatorOptions

NO_NOISE = {"epsilon": 1e6, "delta": 1e-5, "feature_norm": 100.0, "target_bound": 100.0, "random_state": 0, "seed_noise": True}
skips = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning")


def line(records: int = 400, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((records, 3))
    return X, X @ np.array([2.0, -1.0, 0.0]) + 0.5 + noise * rng.standard_normal(records)


def fitted(make: type[PrivateRegressor] = LinearRegression, records: int = 400, **parameters: Any) -> PrivateRegressor:
    return build(make, **{"feature_norm": 4.0, "target_bound": 8.0, **parameters}).fit(*line(records))


@pytest.mark.sampled(12)
@pytest.mark.slow
@skips
@parametrize_with_checks(
    [LinearRegression(feature_norm=5.0, target_bound=(-1, 3), **SEEDED)], expected_failed_checks=lambda estimator: EXCUSED
)
def test_a_regressor_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.sampled(60)
@skips
@pytest.mark.slow
@parametrize_with_checks(
    [
        LinearRegression(**SEEDED),
        Ridge(options=EstimatorOptions(mechanism="cyclic"), **SEEDED),
        Lasso(options=EstimatorOptions(passes=2), **SEEDED),
        ElasticNet(neighbours="zero_out", options=EstimatorOptions(passes=2), **SEEDED),
        HuberRegressor(options=EstimatorOptions(mechanism="cyclic"), **SEEDED),
    ],
    expected_failed_checks=lambda estimator: EXCUSED,
)
def test_every_regressor_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name not in ("auto", "sgd", "poisson")])
def test_every_mechanism_meets_the_target_and_declares_nothing(name: str, neighbours: str) -> None:
    model = fitted(mechanism=name, neighbours=neighbours, epsilon=0.8, delta=1e-4, target_bound="auto")
    assert model.mechanism_ == name
    assert 0.78 < model.epsilon_ <= 0.8
    assert {finding.evidence for finding in model.certificate_.findings} <= {"checked", "enforced"}
    assert model.statement_.neighbours == neighbours
    assert "range of the targets" in model.privacy_report_


@pytest.mark.slow
def test_without_noise_ridge_is_scikit_learns() -> None:
    X, y = line(100)
    wanted = sklearn.linear_model.Ridge(alpha=30.0, fit_intercept=False).fit(X, y).coef_
    tight = {**NO_NOISE, "feature_norm": float(np.linalg.norm(X, axis=1).max()), "target_bound": 8.0, "epsilon": 1e8}
    for mechanism in ("adassp", "objective_perturbation"):
        model = Ridge(alpha=30.0, options=EstimatorOptions(mechanism=mechanism), fit_intercept=False, **tight).fit(X, y)
        np.testing.assert_allclose(model.coef_, wanted, atol=0.01)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_targets_are_truncated_at_their_public_range() -> None:
    X, y = line()
    near, far = y.copy(), y.copy()
    near[0], far[0] = 8.0, 1e9
    for mechanism in ("adassp", "cyclic", "output_perturbation"):
        one, two = (
            LinearRegression(options=EstimatorOptions(mechanism=mechanism), feature_norm=4.0, target_bound=8.0, **SEEDED).fit(X, part)
            for part in (near, far)
        )
        np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.slow
def test_a_centre_is_taken_off_only_with_an_intercept() -> None:
    X, y = line(4000)
    model = fitted(records=4000, epsilon=5.0, target_bound=(990.0, 1010.0), narrow_range=False)
    assert model.target_range_ == (990.0, 1010.0)
    assert LinearRegression(epsilon=5.0, feature_norm=4.0, target_bound=(992.0, 1008.0)).fit(X, y + 1000.0).score(X, y + 1000.0) > 0.9
    assert fitted(target_bound=(990.0, 1010.0), fit_intercept=False, narrow_range=False).target_range_ == (-1010.0, 1010.0)


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_choice_looks_at_public_facts_only() -> None:
    (X, y), (other, _) = line(), line(seed=7)
    models = [LinearRegression(feature_norm=4.0, target_bound=8.0).fit(*data) for data in ((X, y), (other, np.zeros(400)))]
    assert models[0].mechanism_ == models[1].mechanism_
    whys = [[row for row in model.privacy_report_.splitlines() if "predicted" in row] for model in models]
    assert whys[0] == whys[1]


@pytest.mark.slow
def test_a_penalty_is_never_smaller_than_asked_for() -> None:
    for mechanism in ("adassp", "objective_perturbation", "output_perturbation", "pass_ends"):
        assert np.abs(fitted(Ridge, alpha=1e7, mechanism=mechanism).coef_).max() < 0.05


def test_huber_and_l1_go_where_they_are_minimised() -> None:
    with pytest.raises(InputError, match=r"adassp cannot train this: .*a loss that is linear far out was asked for"):
        fitted(HuberRegressor, mechanism="adassp")
    for name in ("adassp", "objective_perturbation", "output_perturbation"):
        with pytest.raises(InputError, match="l1 are a run's"):
            fitted(Lasso, mechanism=name)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["adassp", "cyclic", "objective_perturbation"])
def test_sparse_equals_dense_and_pickles_hold_no_records(name: str) -> None:
    X, y = line(20_000)
    passes = 2 if name == "cyclic" else "auto"
    models = [
        LinearRegression(options=EstimatorOptions(mechanism=name, passes=passes), feature_norm=4.0, **SEEDED).fit(table, y)
        for table in (X, sparse.csr_array(X), sparse.csr_matrix(X))
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, rtol=1e-6)
    assert len(pickle.dumps(models[0])) < 20_000  # less than a byte a record


@pytest.mark.slow
def test_fresh_noise_differs_and_seeded_noise_repeats() -> None:
    assert (fitted(random_state=0).coef_ != fitted(random_state=0).coef_).any()
    assert (fitted(**SEEDED, target_bound="auto").coef_ == fitted(**SEEDED, target_bound="auto").coef_).all()


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        *((LinearRegression, {"target_bound": bad}) for bad in (0.0, -1.0, math.nan, math.inf, True, "big", None, (1.0, 0.0), (1.0, 1.0))),
        *(
            (LinearRegression, {"target_bound": bad})
            for bad in ((0.0, 1.0, 2.0), (), (math.nan, 1.0), (-math.inf, 0.0), ("a", "b"), {"a": 1})
        ),
        *((Ridge, {"alpha": bad}) for bad in (-1.0, math.nan, math.inf, "x", None, True)),
        *((ElasticNet, {"l1_ratio": bad}) for bad in (-0.1, 1.1, math.nan, None)),
        (Lasso, {"alpha": -1.0}),
        (HuberRegressor, {"alpha": -1.0}),
        *((HuberRegressor, {"residual_bound": bad}) for bad in (0.0, math.inf, "x", None)),
        (HuberRegressor, {"target_bound": None}),
        (LinearRegression, {"feature_norm": None}),
        (LinearRegression, {"fit_intercept": "yes"}),
    ],
)
def test_bad_parameters_are_refused_in_fit(make: type[PrivateRegressor], bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        fitted(make, **bad)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_bad_targets_are_refused(value: float) -> None:
    X, y = line()
    y[3] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        LinearRegression().fit(X, y)
    with pytest.raises(ValueError, match="a model has one target"):
        LinearRegression().fit(X, X)
