"""What an estimator's own epsilon does not count is told: folds of a cross-validation, and steps that learned without privacy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from private_cases import two_blobs
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, train_test_split
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

import lethe
from lethe.errors import RepeatedFitWarning, UncoveredStepWarning
from lethe.estimators import LogisticRegression, PrivateSearch, PrivateStandardScaler, PublicScaler, privacy_of, unseen_costs

X, Y = two_blobs(records=240)
MODEL: Any = LogisticRegression(epsilon=1.0, delta=1e-4, feature_norm=4.0, mechanism="cyclic", passes=2, classes=[0, 1])


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_costs, "_told", set())


def _said(call: Any, kind: type[Warning]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if issubclass(one.category, kind)]


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda: cross_val_score(clone(MODEL), X, Y, cv=3), "3 fits cost up to 3 times as much: epsilon = 3 for 1"),
        (lambda: cross_val_predict(clone(MODEL), X, Y, cv=KFold(2)), "2 fits cost up to 2 times"),
        (lambda: GridSearchCV(clone(MODEL), {"C": [0.1, 1.0]}, cv=2, refit=False).fit(X, Y), "4 fits cost up to 4 times"),
        (lambda: cross_val_score(make_pipeline(PublicScaler(-9, 9), clone(MODEL)), X, Y, cv=2), "2 fits"),
    ],
    ids=["cross_val_score", "cross_val_predict", "GridSearchCV", "pipeline"],
)
def test_cross_validation_is_told_once_with_what_it_costs(call: Any, count: str) -> None:
    (said,) = _said(call, RepeatedFitWarning)
    assert count in said
    assert "PrivateSearch" in said
    assert _said(call, RepeatedFitWarning) == []  # once a process


def test_ordinary_use_is_not_warned_of() -> None:
    def ordinary() -> None:
        train, test, labels, _ = train_test_split(X, Y, random_state=0)
        for _ in range(2):
            model: Any = clone(MODEL)
            model.fit(train, labels).predict(test)
        scaler = PrivateStandardScaler(delta=1e-4, bounds=(-9.0, 9.0))
        union = FeatureUnion([("a", Normalizer()), ("b", FunctionTransformer())])
        columns = ColumnTransformer([("scaled", PublicScaler(-9, 9), [0, 1])], remainder="passthrough")
        for first in (scaler, union, columns, "passthrough", FunctionTransformer(np.abs)):
            make_pipeline(first, clone(MODEL)).fit(X, Y)

    assert _said(ordinary, lethe.LetheWarning) == []


def test_a_private_search_within_its_one_epsilon_is_not_warned_of() -> None:
    search = PrivateSearch(clone(MODEL), {"C": [1.0]}, tries=1.5, delta=1e-4)
    assert _said(lambda: search.fit(X, Y), lethe.LetheWarning) == []


@pytest.mark.parametrize(
    ("first", "named"),
    [
        (StandardScaler(), "step 'standardscaler' (StandardScaler)"),
        (ColumnTransformer([("c", StandardScaler(), [0])], remainder="passthrough"), "step 'columntransformer > c' (StandardScaler)"),
        (make_pipeline(Normalizer(), StandardScaler()), "step 'pipeline > standardscaler' (StandardScaler)"),
    ],
    ids=["scaler", "columns", "nested"],
)
def test_a_step_that_learned_is_told_and_stands_in_the_headline(first: Any, named: str) -> None:
    pipeline: Any = make_pipeline(first, clone(MODEL))
    (said,) = _said(lambda: pipeline.fit(X, Y), UncoveredStepWarning)
    assert named in said
    assert "privacy_of(pipeline) refuses it" in said
    report = pipeline[-1].privacy_report_.splitlines()
    assert report[1].startswith(f"NOT OF THE PIPELINE: {named}")
    with pytest.raises(lethe.InputError, match="StandardScaler"):
        privacy_of(pipeline)


def test_a_private_step_between_sees_what_came_before_it_alone() -> None:
    """The scaler behind it has not been fitted when it is."""
    pipeline: Any = make_pipeline(PrivateStandardScaler(delta=1e-4, bounds=(-9.0, 9.0)), StandardScaler(), clone(MODEL))
    (said,) = _said(lambda: pipeline.fit(X, Y), UncoveredStepWarning)
    assert "before LogisticRegression was fitted" in said
    assert "NOT OF THE PIPELINE" not in pipeline[0].privacy_report_


def test_an_estimator_s_own_report_speaks_of_its_own_fit() -> None:
    model: Any = clone(MODEL)
    second, third = model.fit(X, Y).privacy_report_.splitlines()[1:3]
    assert second == "That is about this fit alone, given the rows it was called with; of a pipeline ask privacy_of(pipeline)."
    assert "StandardScaler" in third
