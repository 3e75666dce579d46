"""scikit-learn's own checks of the estimators for heavy tails, and what they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from excused_checks import SEEDED
from private_cases import build, cloned
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.errors import InputError
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


@pytest.mark.parametrize("kind", [HeavyTailedLinearRegression, HeavyTailedLogisticRegression, PrivateMean])
@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": float("nan")},
        {"delta": 1.0},
        {"neighbours": "add_or_remove"},
        {"mechanism": "newton"},
        {"mechanism": None},
        {"parameters": "best"},
        {"moment": 0.0},
        {"moment": float("inf")},
        {"moment": "public"},
        {"moment": True},
        {"order": 1.5},
        {"passes": 2.0, "mechanism": "multi_pass"},
        {"seed_noise": 1},
    ],
)
def test_a_wrong_parameter_is_refused_in_fit(kind: Any, wrong: dict[str, Any]) -> None:
    model = build(kind, **{"moment": 2.0, **wrong})
    assert cloned(model).get_params()["epsilon"] is model.epsilon
    with pytest.raises(InputError):
        model.fit(np.ones((20, 2)), np.arange(20) % 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"smoothness": -1.0},
        {"smoothness": "auto"},
        {"radius": 0.0},
        {"strong_convexity": 0.0},
        {"fit_intercept": 1},
        {"solver": "multi_pass", "parameters": "theory"},
        {"solver": "localised", "parameters": "optimised", "radius": 1.0},
        {"solver": "accelerated"},  # no radius
        {"solver": "one_pass", "radius": 1.0},  # no strong convexity
        {"solver": "localised", "radius": 1.0, "order": 3.0},
    ],
)
def test_a_wrong_parameter_of_a_model_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        build(HeavyTailedLinearRegression, **{"moment": 2.0, "smoothness": 1.0, **wrong}).fit(np.ones((20, 2)), np.arange(20.0))


def test_too_few_records_for_private_constants_are_refused_with_a_way_out() -> None:
    with pytest.raises(InputError, match="state the moment"):
        HeavyTailedLinearRegression(options=EstimatorOptions(mechanism="accelerated", parameters="theory"), radius=1.0).fit(
            np.ones((20, 2)), np.arange(20.0)
        )


def test_more_than_two_classes_and_a_centre_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="binary"):
        HeavyTailedLogisticRegression(moment=1.0).fit(np.ones((30, 2)), np.arange(30) % 3)
    with pytest.raises(InputError, match="centre"):
        PrivateMean(moment=1.0, centre=[0.0]).fit(np.ones((30, 2)))
