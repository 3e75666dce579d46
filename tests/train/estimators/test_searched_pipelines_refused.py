"""Private selection over pipelines: steps, candidates and shares that may leak are refused before any data are used."""

from __future__ import annotations

import math
from typing import Any

import pytest
from private_cases import cloned, two_blobs
from searched_pipelines import MODEL, SCALED, SEEDED, search
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from lethe.errors import CalibrationError, InputError
from lethe.estimators import LogisticRegression, PrivateStandardScaler, Ridge


class _Centred(TransformerMixin, BaseEstimator):
    def fit(self, X: Any, y: Any = None) -> Any:
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.mean_


class _Shifted(Normalizer):
    """A subclass may learn."""


class _Scaler(PrivateStandardScaler):
    """So may one of a private step."""


class _Pipeline(Pipeline):
    """And so may one of a pipeline."""


def first(step: Any) -> Pipeline:
    return Pipeline([("first", step), ("model", MODEL)])


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (first(StandardScaler()), "'first', StandardScaler, may learn"),
        (first(MinMaxScaler()), "may learn"),
        (first(_Centred()), "may learn"),
        (first(_Shifted()), "may learn"),
        (first(_Scaler()), "may learn"),
        (first("scale"), "may learn"),
        (first(make_pipeline(Normalizer(), StandardScaler())), "'standardscaler', StandardScaler, may learn"),
        (first(FunctionTransformer(lambda rows: rows - rows.mean(axis=0))), "treats every record by itself"),
        (first(ColumnTransformer([("some", PrivateStandardScaler(), [0])])), "side by side"),
        (first(FeatureUnion([("some", PrivateStandardScaler())])), "side by side"),
        (first(LogisticRegression()), "one is allowed, at the end"),
        (first(make_pipeline(Normalizer(), LogisticRegression())), "one is allowed, at the end"),
        (make_pipeline(PrivateStandardScaler(), RandomForestClassifier()), "RandomForestClassifier, may learn"),
        (make_pipeline(PrivateStandardScaler()), "ends in PrivateStandardScaler"),
        (make_pipeline(PrivateStandardScaler(), "passthrough"), "ends in 'passthrough'"),
        (make_pipeline(PrivateStandardScaler(), Normalizer()), "ends in Normalizer"),
        (_Pipeline([("model", MODEL)]), "got _Pipeline"),
        (Pipeline([]), "pairs"),
        (make_pipeline(PrivateStandardScaler(), MODEL, memory="cache"), "cache"),
        (first(make_pipeline(PrivateStandardScaler(), memory="cache")), "cache"),
        (make_pipeline(PrivateStandardScaler(), MODEL, verbose=True), "is secret"),
        (Pipeline(SCALED.steps, transform_input=["sample_weight"]), "transform_input"),
        (first(PrivateStandardScaler(**SEEDED)), "step first: its noise is seeded"),
        (make_pipeline(PrivateStandardScaler(), cloned(MODEL).set_params(**SEEDED)), "step logisticregression: its noise is seeded"),
    ],
)
def test_estimators_that_may_leak_are_refused_before_any_data_are_used(estimator: Any, message: str) -> None:
    grid = {f"{estimator.steps[-1][0]}__C": [1.0]} if isinstance(estimator, Pipeline) and estimator.steps else {}
    with pytest.raises(InputError, match=message):
        search(estimator, grid).fit("no data", None)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"candidates": {"logisticregression__epsilon": [9.0]}}, "logisticregression__epsilon is among"),
        ({"candidates": {"privatestandardscaler__delta": [0.1]}}, "delta is among"),
        ({"candidates": {"privatestandardscaler__neighbours": ["zero_out"]}}, "neighbours is among"),
        ({"candidates": {"privatestandardscaler__seed_noise": [True]}}, "seed_noise is among"),
        ({"candidates": {"privatestandardscaler__random_state": [0]}}, "random_state is among"),
        ({"candidates": {"logisticregression__classes": [[0, 1]]}}, "classes is among"),
        ({"candidates": {"privatestandardscaler": [PrivateStandardScaler(), StandardScaler()]}}, "may learn"),
        ({"candidates": {"privatestandardscaler": [PrivateStandardScaler(**SEEDED)]}}, "noise is seeded"),
        ({"candidates": {"logisticregression": [Ridge(target_bound=1.0)]}}, "classifiers"),
        ({"candidates": {"logisticregression": [RandomForestClassifier()]}}, "may learn"),
        ({"candidates": {"memory": [None, "cache"]}}, "cache"),
        ({"candidates": {"steps": [[("a", StandardScaler()), ("logisticregression", MODEL)]]}}, "may learn"),
        ({"shares": 0.5}, "shares"),
        ({"shares": {}}, "none for privatestandardscaler, logisticregression"),
        ({"shares": {"logisticregression": 1.0}}, "none for privatestandardscaler"),
        ({"shares": {"privatestandardscaler": 0.0, "logisticregression": 1.0}}, "shares"),
        ({"shares": {"privatestandardscaler": math.nan, "logisticregression": 1.0}}, "shares"),
        ({"shares": {"privatestandardscaler": True, "logisticregression": 1.0}}, "shares"),
        ({"shares": {"privatestandardscaler": 1.0, "logisticregression": 1.0, "pca": 1.0}}, "pca"),
        ({"estimator": MODEL, "candidates": {"C": [1.0]}, "shares": {"model": 1.0}}, "has the whole budget"),
    ],
)
def test_candidates_that_may_leak_and_bad_shares_are_refused_before_any_data_are_used(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(**parameters).fit("no data", None)


def test_unknown_parameters_and_shares_too_small_for_anything_are_refused() -> None:
    with pytest.raises(InputError, match="depth: LogisticRegression takes no such argument"):
        search(candidates={"logisticregression__depth": [1]}).fit(*two_blobs())
    with pytest.raises(CalibrationError, match="nothing is left for step privatestandardscaler"):
        search(shares={"privatestandardscaler": 1e-14, "logisticregression": 1.0}).fit(*two_blobs())
