"""What an estimator's own epsilon does not count is told: steps that learned without privacy. Of repeated fits: test_repeated_fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from private_cases import two_blobs, warnings_of
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

import lethe
from lethe.errors import UncoveredStepWarning
from lethe.estimators import LinearRegression, LogisticRegression, PrivateStandardScaler, PublicScaler, privacy_of
from lethe.estimators.options import EstimatorOptions

X, Y = two_blobs(records=240)
MODEL: Any = LogisticRegression(
    epsilon=1.0, delta=1e-4, feature_norm=4.0, options=EstimatorOptions(mechanism="cyclic", passes=2), classes=[0, 1]
)


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

    assert warnings_of(ordinary, lethe.LetheWarning) == []


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
    (said,) = warnings_of(lambda: pipeline.fit(X, Y), UncoveredStepWarning)
    assert named in said
    assert "privacy_of(pipeline) refuses it" in said
    report = pipeline[-1].privacy_report_.splitlines()
    assert report[1].startswith(f"NOT OF THE PIPELINE: {named}")
    with pytest.raises(lethe.InputError, match="StandardScaler"):
        privacy_of(pipeline)


def test_a_private_step_between_sees_what_came_before_it_alone() -> None:
    """The scaler behind it has not been fitted when it is."""
    pipeline: Any = make_pipeline(PrivateStandardScaler(delta=1e-4, bounds=(-9.0, 9.0)), StandardScaler(), clone(MODEL))
    (said,) = warnings_of(lambda: pipeline.fit(X, Y), UncoveredStepWarning)
    assert "before LogisticRegression was fitted" in said
    assert "NOT OF THE PIPELINE" not in pipeline[0].privacy_report_


def test_what_transformed_the_targets_is_a_step_before() -> None:
    model = LinearRegression(
        epsilon=1.0, delta=1e-4, feature_norm=4.0, target_bound=2.0, options=EstimatorOptions(mechanism="cyclic", passes=2)
    )
    whole: Any = TransformedTargetRegressor(clone(model), transformer=StandardScaler())
    (said,) = warnings_of(lambda: whole.fit(X, X.sum(axis=1)), UncoveredStepWarning)
    assert "step 'transformer' (StandardScaler) learned" in said
    assert "NOT OF THE PIPELINE: step 'transformer' (StandardScaler)" in whole.regressor_.privacy_report_
    with pytest.raises(lethe.InputError, match="TransformedTargetRegressor"):
        privacy_of(whole)
    for public in ({"func": np.log1p, "inverse_func": np.expm1}, {"transformer": PublicScaler(-9, 9)}, {}):
        plain: Any = TransformedTargetRegressor(clone(model), **public)
        assert warnings_of(lambda plain=plain: plain.fit(X, np.abs(X.sum(axis=1))), lethe.LetheWarning) == []


def test_an_estimator_s_own_report_speaks_of_its_own_fit() -> None:
    model: Any = clone(MODEL)
    second, third = model.fit(X, Y).privacy_report_.splitlines()[1:3]
    assert second == "That is about this fit alone, given the rows it was called with; of a pipeline ask privacy_of(pipeline)."
    assert "StandardScaler" in third
