"""Every estimator's constructor has the parameters that its docstring lists, its own and inherited ones."""

from __future__ import annotations

import inspect
import re
from dataclasses import field
from typing import Any

import pytest
from sklearn import decomposition, linear_model, model_selection, preprocessing, svm
from sklearn.base import BaseEstimator, clone

import lethe.estimators
from lethe.errors import UnknownArgumentError
from lethe.estimators.absent_parameters import ABSENT
from lethe.estimators.parameters import Parameterised

THEIRS = {
    lethe.estimators.LogisticRegression: linear_model.LogisticRegression,
    lethe.estimators.LinearRegression: linear_model.LinearRegression,
    lethe.estimators.Ridge: linear_model.Ridge,
    lethe.estimators.Lasso: linear_model.Lasso,
    lethe.estimators.ElasticNet: linear_model.ElasticNet,
    lethe.estimators.HuberRegressor: linear_model.HuberRegressor,
    lethe.estimators.LinearSVC: svm.LinearSVC,
    lethe.estimators.PrivateStandardScaler: preprocessing.StandardScaler,
    lethe.estimators.PublicScaler: preprocessing.MinMaxScaler,
    lethe.estimators.PrivatePCA: decomposition.PCA,
    lethe.estimators.PrivateSearch: model_selection.GridSearchCV,
}
CLASSES = [each for name in lethe.estimators.__all__ if isinstance(each := getattr(lethe.estimators, name), type)]


@pytest.mark.parametrize("estimator", CLASSES, ids=lambda each: each.__name__)
def test_the_docstring_lists_the_parameters_of_the_constructor(estimator: type) -> None:
    text = inspect.cleandoc(estimator.__doc__ or "")
    described = text.split("\nArgs:\n")[1]
    told = [name for names in re.findall(r"^ {4}(\w[\w, ]*):", described, re.MULTILINE) for name in names.split(", ")]
    assert sorted(told) == sorted(inspect.signature(estimator).parameters)


class First(Parameterised, BaseEstimator):
    """The first.

    Args:
        low: as it is
            on two lines.
        high: above it.
    Attributes: none.
    """

    low: float = 0.0
    high: float = 1.0
    found_: float = field(init=False)


class Second(First):
    """The second.

    Args:
        high: far above.
    """

    times: Any = field(default=3, kw_only=False)


class Third(First):
    """The third."""

    def __init__(self, *, low: float = 5.0) -> None:
        super().__init__(low=low)


def test_parameters_are_inherited_and_cloned() -> None:
    made: Any = clone(Second(7, low=-1.0))
    assert made.get_params() == {"low": -1.0, "high": 1.0, "times": 7}
    assert not hasattr(made, "found_")
    assert "times" not in First().get_params()


def test_own_words_come_before_inherited_ones() -> None:
    assert Second.__doc__ == "The second.\n\nArgs:\n    high: far above.\n    low: as it is\n        on two lines.\n"


def test_a_constructor_that_is_written_is_kept() -> None:
    assert Third().get_params() == {"low": 5.0}
    assert "low: as it is" in str(Third.__doc__)


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        Second(colour="red")  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("estimator", THEIRS, ids=lambda each: each.__name__)
def test_every_parameter_of_scikit_learn_s_class_is_taken_or_answered_with_what_to_do(estimator: Any) -> None:
    for word in inspect.signature(THEIRS[estimator]).parameters:
        if word not in inspect.signature(estimator).parameters:
            with pytest.raises(UnknownArgumentError) as raised:
                estimator(**{word: 1})
            meant = re.search(r"did you mean '(\w+)'", str(raised.value))
            assert (meant is None) == (word in ABSENT), word
            assert meant is None or (word, meant[1]) in {("penalty", "C"), ("max_iter", "passes"), ("param_grid", "candidates")}
            assert meant is not None or raised.value.remedy == ABSENT[word]


def test_a_suggestion_is_right_or_absent() -> None:
    model = lethe.estimators.LinearRegression()
    for word, meant in {
        "bounds_X": "feature_norm",
        "bounds_y": "target_bound",
        "feature_nrom": "feature_norm",
        "intercept": "fit_intercept",
    }.items():
        with pytest.raises(UnknownArgumentError, match=f"did you mean '{meant}'"):
            model.set_params(**{word: 1})
    for word in ("class_weight", "warm_start", "intercept_scaling", "colour"):
        with pytest.raises(UnknownArgumentError) as raised:
            model.set_params(**{word: 1})
        assert "did you mean" not in str(raised.value)
    with pytest.raises(UnknownArgumentError, match=r"sample_weight=\.\.\."):
        model.set_params(class_weight="balanced")
