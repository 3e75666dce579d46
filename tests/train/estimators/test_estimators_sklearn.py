"""scikit-learn's own checks: all pass but those that privacy rules out, each with its reason."""

from collections.abc import Callable
from typing import Any

import pytest
from excused_checks import COMPARES_TWO_FITS, EXCUSED, SEEDED
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from lethe.estimators import LogisticRegression, PrivateSearch, PrivateStandardScaler, SoftmaxRegression
from lethe.estimators.options import EstimatorOptions

# Frames are tested where pandas is installed; array-API input where SCIPY_ARRAY_API is set.
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning"
)


@pytest.mark.sampled(12)
@parametrize_with_checks(
    [LogisticRegression(feature_norm=5.0, options=EstimatorOptions(mechanism="cyclic"), **SEEDED)],
    expected_failed_checks=lambda estimator: EXCUSED,
)
def test_a_run_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.sampled(60)
@parametrize_with_checks(
    [
        LogisticRegression(**SEEDED),
        SoftmaxRegression(**SEEDED),
        LogisticRegression(neighbours="zero_out", options=EstimatorOptions(mechanism="pass_ends"), **SEEDED),
    ],
    expected_failed_checks=lambda estimator: EXCUSED,
)
def test_every_classifier_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


MODEL = LogisticRegression(feature_norm=5.0, options=EstimatorOptions(mechanism="pass_ends", passes=1))


@pytest.mark.sampled(48)
@parametrize_with_checks(
    [
        PrivateSearch(MODEL, {"C": [1.0]}, tries=1.5, **SEEDED),
        PrivateSearch(
            make_pipeline(PrivateStandardScaler(bounds=(-100.0, 100.0)), MODEL), {"logisticregression__C": [1.0]}, tries=1.5, **SEEDED
        ),
    ]
)
def test_a_search_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    """None is excused: it takes no weights."""
    check(estimator)


# A norm released for a few per cent of the budget on 150 records is far too large by chance, one fit in thirty, and fit says so.
@pytest.mark.nightly(by_day="test_every_classifier_is_an_estimator")
@pytest.mark.filterwarnings("ignore::lethe.estimators.inputs.ranges.UnscaledColumnsWarning")
def test_fresh_noise_fails_only_what_compares_two_fits() -> None:
    """Not strict: two fits may agree by chance."""
    results = check_estimator(LogisticRegression(), on_fail=None, on_skip=None)
    assert {result["check_name"] for result in results if result["status"] == "failed"} <= COMPARES_TWO_FITS | set(EXCUSED)
    assert sum(result["status"] == "passed" for result in results) > 40
