"""scikit-learn's own checks of the estimators for heavy tails, and what they refuse."""

from collections.abc import Callable
from typing import Any

import pytest
from excused_checks import SEEDED
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.estimators import HeavyTailedLinearRegression, HeavyTailedLogisticRegression, PrivateMean
from lethe.estimators.options import EstimatorOptions

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")

GIVEN = {"moment": 5.0, "smoothness": 10.0}


@pytest.mark.sampled(4)
@parametrize_with_checks(
    [
        HeavyTailedLinearRegression(**SEEDED),
        HeavyTailedLogisticRegression(**GIVEN, radius=5.0, options=EstimatorOptions(mechanism="accelerated"), **SEEDED),
        PrivateMean(**SEEDED),
    ]
)
def test_it_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
