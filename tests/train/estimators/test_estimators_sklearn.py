"""scikit-learn's own checks: all pass but those that privacy rules out, each with its reason."""

from collections.abc import Callable
from typing import Any

import pytest
from excused_checks import COMPARES_TWO_FITS, EXCUSED, SEEDED
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from lethe.estimators import (
    ElasticNet,
    HeavyTailedLinearRegression,
    HeavyTailedLogisticRegression,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivateMean,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
    PrivateWhitening,
    PublicScaler,
    Ridge,
    SoftmaxRegression,
)
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.options import EstimatorOptions
from lethe.features import PublicWhitening, RandomFourierFeatures, RecordNormalizer

# Frames are tested where pandas is installed; array-API input where SCIPY_ARRAY_API is set.
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning"
)
FRESH = {"check_fit_idempotent": "it compares two fits, and the noise of each is fresh; passes with seed_noise"}
CYCLIC, PASSES = EstimatorOptions(mechanism="cyclic"), EstimatorOptions(passes=2)
MODEL = LogisticRegression(feature_norm=5.0, options=EstimatorOptions(mechanism="pass_ends", passes=1))
QUICK = [
    LogisticRegression(feature_norm=5.0, options=CYCLIC, **SEEDED),
    LinearSVC(**SEEDED),
    HeavyTailedLinearRegression(**SEEDED),
    HeavyTailedLogisticRegression(moment=5.0, smoothness=10.0, radius=5.0, options=EstimatorOptions(mechanism="accelerated"), **SEEDED),
    PrivateMean(**SEEDED),
    PrivateStandardScaler(**SEEDED),
    PrivateStandardScaler(bounds=(-5, 20), **SEEDED),
    PrivateQuantileClipper(**SEEDED),
    PrivateQuantileClipper(tail=None, norm_quantile=0.7, **SEEDED),
    PrivateQuantileClipper(norm_quantile=0.7, **SEEDED),
    PrivatePCA(2, **SEEDED),
    PrivatePCA(feature_norm=20.0, centre=False, **SEEDED),
    PrivateWhitening(**SEEDED),
    PrivateWhitening(feature_norm=20.0, floor=0.1, **SEEDED),
    PrivatePCA(),
    PrivateStandardScaler(),
    PublicWhitening([0.5], [[4.0]]),
    PublicScaler(-1.0, 2.0),
    PublicScaler(-3.0, 3.0),
    PublicScaler(0.0, 1.0, clip=False),
    RandomFourierFeatures(10, gamma=0.3),
    RecordNormalizer(),
    RecordNormalizer(None, groups=1),
]
LONG = [
    LogisticRegression(**SEEDED),
    SoftmaxRegression(**SEEDED),
    LogisticRegression(neighbours="zero_out", options=EstimatorOptions(mechanism="pass_ends"), **SEEDED),
    LinearRegression(**SEEDED),
    Ridge(options=CYCLIC, **SEEDED),
    Lasso(options=PASSES, **SEEDED),
    ElasticNet(neighbours="zero_out", options=PASSES, **SEEDED),
    HuberRegressor(options=CYCLIC, **SEEDED),
    PrivateSearch(MODEL, {"C": [1.0]}, tries=1.5, **SEEDED),
    PrivateSearch(
        make_pipeline(PrivateStandardScaler(bounds=(-100.0, 100.0)), MODEL), {"logisticregression__C": [1.0]}, tries=1.5, **SEEDED
    ),
]


def excused(estimator: Any) -> dict[str, str]:
    """A search takes no weights, nor does what transforms."""
    return EXCUSED if isinstance(estimator, PrivateLinearModel) else {} if getattr(estimator, "seed_noise", True) else FRESH


@pytest.mark.sampled(8)
@parametrize_with_checks(QUICK, expected_failed_checks=excused)
def test_it_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.sampled(60)
@parametrize_with_checks(LONG, expected_failed_checks=excused)
def test_what_takes_long_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


# A norm released for a few per cent of the budget on 150 records is far too large by chance, one fit in thirty, and fit says so.
@pytest.mark.nightly(by_day="test_it_is_an_estimator")
@pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.ranges.UnscaledColumnsWarning")
def test_fresh_noise_fails_only_what_compares_two_fits() -> None:
    """Not strict: two fits may agree by chance."""
    results = check_estimator(LogisticRegression(), on_fail=None, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] == "failed"} <= COMPARES_TWO_FITS | set(EXCUSED)
    assert sum(result["status"] == "passed" for result in results) > 40
