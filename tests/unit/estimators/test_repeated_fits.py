"""Several fits on the same records within something of scikit-learn's are warned of: folds, members of ensembles, candidates."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from private_cases import build, two_blobs, warnings_of
from sklearn.base import RegressorMixin, clone
from sklearn.ensemble import BaggingClassifier
from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer  # noqa: F401
from sklearn.feature_selection import RFE
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    permutation_test_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import all_estimators

import lethe
from lethe.errors import RepeatedFitWarning
from lethe.estimators import LinearRegression, LogisticRegression, PrivateSearch, PrivateStandardScaler, PublicScaler, unseen_costs
from lethe.estimators.private_estimator import PrivateEstimator

X, Y = two_blobs(records=240)
SHARED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4, "feature_norm": 4.0, "mechanism": "cyclic", "passes": 2}
MODEL: Any = build(LogisticRegression, **SHARED, classes=[0, 1])
REGRESSION: Any = build(LinearRegression, **SHARED, target_bound=2.0)
SCALER = PrivateStandardScaler(delta=1e-4, bounds=(-9.0, 9.0))


def _fits_others(name: str, kind: type) -> bool:
    parameters = set(inspect.signature(kind).parameters)
    holds = {"estimator", "estimators", "regressor", "steps", "transformers", "transformer_list"} & parameters
    boosts = kind.__module__.startswith("sklearn.ensemble") and "init" in parameters
    # A frozen estimator fits nothing; an output code makes labels that are in no list of classes.
    return bool(holds or boosts) and name not in ("FrozenEstimator", "OutputCodeClassifier")


OUTER = {name: kind for name, kind in all_estimators() if _fits_others(name, kind)}
"""Every estimator of scikit-learn that fits others."""
FITS_OF_ONE_EACH = {
    "ColumnTransformer": 1,
    "FeatureUnion": 1,
    "FixedThresholdClassifier": 1,
    "Pipeline": 2,  # its scaler and its model
    "SelectFromModel": 1,
    "TransformedTargetRegressor": 1,
}


@pytest.fixture(autouse=True)
def _no_warning_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_costs, "_warned_of", set())


def _fit(name: str) -> None:
    """Fit an estimator of scikit-learn that holds private ones."""
    kind: Any = OUTER[name]
    rows, targets = X, Y
    model: Any = clone(MODEL)
    if issubclass(kind, RegressorMixin) or name == "IterativeImputer":
        model, targets = clone(REGRESSION), X.sum(axis=1)
    # Boosting stops where a model is no better than chance, and its weights, which sum to 1, are far below max_weight.
    model.set_params(epsilon=1e4, random_state=0, seed_noise=True, options__max_weight=0.1 if name.startswith("Ada") else 20.0)
    settings = {
        **dict.fromkeys(("estimator", "regressor", "init"), model),
        "estimators": [("a", model), ("b", clone(model))],
        "steps": [("a", SCALER), ("b", model)],
        "transformers": [("a", SCALER, [0])],
        "transformer_list": [("a", SCALER)],
        **{key: {"fit_intercept": [True, False]} for key in ("param_grid", "param_distributions")},
        **dict.fromkeys(("n_estimators", "n_iter", "cv", "max_trials", "n_features_to_select"), 2),
        "min_samples": 60,
        "random_state": 0,
        "transformer": FunctionTransformer(),
    }
    if "MultiOutput" in name or "Chain" in name:
        targets = np.stack([targets, targets], axis=1)
    if name == "SelfTrainingClassifier":
        targets = np.where(np.arange(len(Y)) < 120, Y, -1)
    if name == "IterativeImputer":
        rows = np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, np.nan, X)
    outer: Any = kind(**{key: value for key, value in settings.items() if key in inspect.signature(kind).parameters})
    outer.fit(rows, targets)


@pytest.mark.parametrize("name", OUTER)
def test_all_of_scikit_learn_that_may_fit_a_private_estimator_again_is_warned_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[Any] = []
    state = PrivateEstimator._state

    def counted(self: PrivateEstimator, *parts: Any, **options: Any) -> None:
        fits.append(self)
        state(self, *parts, **options)

    monkeypatch.setattr(PrivateEstimator, "_state", counted)
    messages = warnings_of(lambda: _fit(name), RepeatedFitWarning)
    if name in FITS_OF_ONE_EACH:
        assert (messages, len(fits)) == ([], FITS_OF_ONE_EACH[name])
    else:
        (message,) = messages
        assert f"fitted by {name} of scikit-learn, which may fit it several times" in message
        assert fits


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda: cross_val_score(clone(MODEL), X, Y, cv=3), "cross_val_score .*: 3 fits cost up to 3 times as much: epsilon = 3 for 1"),
        (lambda: cross_val_predict(clone(MODEL), X, Y, cv=KFold(2)), "cross_val_predict .*: 2 fits cost up to 2 times"),
        (lambda: cross_val_score(make_pipeline(PublicScaler(-9, 9), clone(MODEL)), X, Y, cv=2), "2 fits"),
        (lambda: GridSearchCV(clone(MODEL), {"C": [0.1, 1.0]}, cv=2, refit=False).fit(X, Y), "GridSearchCV .*: 4 fits cost up to 4 times"),
        (lambda: GridSearchCV(clone(MODEL), {"C": [0.1, 1.0]}, cv=2).fit(X, Y), "GridSearchCV .*: 5 fits"),
        (lambda: HalvingGridSearchCV(clone(MODEL), {"C": [0.1, 1.0]}, cv=2).fit(X, Y), "HalvingGridSearchCV .*: k fits cost up to k times"),
        (lambda: cross_val_score(RFE(clone(MODEL), n_features_to_select=2), X, Y, cv=2), "cross_val_score .*: k fits"),
        (lambda: learning_curve(clone(MODEL), X, Y, cv=2, train_sizes=[0.5]), "learning_curve .*: k fits"),
        (lambda: permutation_test_score(clone(MODEL), X, Y, cv=2, n_permutations=1), "permutation_test_score .*: k fits"),
    ],
    ids=["folds", "predictions", "pipeline", "search", "refit", "halving", "nested", "learning_curve", "permutations"],
)
def test_it_is_told_once_by_name_and_with_what_it_costs_where_the_call_says_so(call: Any, count: str) -> None:
    (message,) = warnings_of(call, RepeatedFitWarning)
    assert re.search(count, message), message
    assert "PrivateSearch" in message
    assert warnings_of(call, RepeatedFitWarning) == []  # once a process


def test_a_private_search_within_its_one_epsilon_is_not_warned_of() -> None:
    search = PrivateSearch(clone(MODEL), {"C": [1.0]}, tries=1.5, delta=1e-4)
    assert warnings_of(lambda: search.fit(X, Y), lethe.LetheWarning) == []


def test_a_private_search_within_folds_is_told_with_its_own_epsilon() -> None:
    search = PrivateSearch(clone(MODEL), {"C": [1.0]}, tries=1.5, delta=1e-4, epsilon=2.0)
    (message,) = warnings_of(lambda: cross_val_score(search, X, Y, cv=2), RepeatedFitWarning)
    assert "2 fits cost up to 2 times as much: epsilon = 4 for 2" in message


def test_threads_that_fit_are_warned_of_though_they_do_not_know_for_whom() -> None:
    model: Any = clone(MODEL)
    model.set_params(options__max_weight=20.0)
    with parallel_config("threading", n_jobs=2):
        messages = warnings_of(lambda: BaggingClassifier(model, n_estimators=2).fit(X, Y), RepeatedFitWarning)
    assert "fitted by a parallel loop of scikit-learn" in messages[0]
