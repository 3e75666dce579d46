"""What a search by cross-validation found was chosen by the records: privacy_of refuses it, however it is handed on."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from private_cases import two_blobs
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.base import clone as copied
from sklearn.calibration import CalibratedClassifierCV
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from lethe.errors import InputError
from lethe.estimators import LogisticRegression, PrivateSearch, PrivateStandardScaler, privacy_of, privacy_report_of
from lethe.estimators.options import EstimatorOptions

# What they warn of is refused below.
pytestmark = [pytest.mark.filterwarnings("ignore::lethe.errors.RepeatedFitWarning")]

X, Y = two_blobs(records=240)
MODEL: Any = LogisticRegression(
    epsilon=1.0, delta=1e-4, feature_norm=4.0, options=EstimatorOptions(mechanism="cyclic", passes=2), classes=[0, 1]
)
GRID: dict[str, Any] = {"C": [0.1, 1.0, 10.0]}


def clone(model: Any) -> Any:
    return copied(model)


SEARCHES = {
    "grid": lambda model, grid: GridSearchCV(model, grid, cv=2),
    "random": lambda model, grid: RandomizedSearchCV(model, grid, n_iter=2, cv=2, random_state=0),
    "halving": lambda model, grid: HalvingGridSearchCV(model, grid, cv=2, random_state=0),
    "processes": lambda model, grid: GridSearchCV(model, grid, cv=2, n_jobs=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid", "random", "halving", pytest.param("processes", marks=pytest.mark.nightly)])
def test_what_a_search_found_is_refused(name: str) -> None:
    """Seven fits were made, of which the best was kept; its own statement says what one fit costs."""
    search: Any = SEARCHES[name](clone(MODEL), GRID).fit(X, Y)
    best = search.best_estimator_
    assert best.epsilon_ <= 1.0
    for given in (search, best, [best], pickle.loads(pickle.dumps(best)), make_pipeline(best)):
        with pytest.raises(InputError, match=r"chose this one by scores that have no noise|which was best was chosen by them"):
            privacy_of(given)
        with pytest.raises(InputError, match="PrivateSearch"):
            privacy_report_of(given, 1e-4)


@pytest.mark.slow
def test_a_pipeline_and_a_private_search_within_a_search_are_refused_too() -> None:
    whole = make_pipeline(PrivateStandardScaler(delta=1e-4, bounds=(-9.0, 9.0)), clone(MODEL))
    found = GridSearchCV(whole, {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(X, Y).best_estimator_
    for given in (found, found[0], found[-1]):
        with pytest.raises(InputError, match="GridSearchCV fitted it"):
            privacy_of(given)
    inner = PrivateSearch(clone(MODEL), {"C": [1.0]}, tries=1.5, delta=1e-4)
    outer = GridSearchCV(inner, {"held_out": [0.2, 0.3]}, cv=2).fit(X, Y).best_estimator_
    for given in (outer, outer.best_estimator_):
        with pytest.raises(InputError, match="GridSearchCV fitted it"):
            privacy_of(given)


def test_a_clone_with_the_parameters_found_is_a_fit_of_its_own_and_says_what_it_takes_on_trust() -> None:
    search: Any = GridSearchCV(clone(MODEL), GRID, cv=2).fit(X, Y)
    best: Any = clone(search.best_estimator_)
    again = best.fit(X, Y)
    assert privacy_of(again).epsilon(1e-4) <= 1.0
    trusted = [finding for finding in privacy_of(again).findings if finding.name == "no other fits"]
    assert [finding.evidence for finding in trusted] == ["declared"]
    assert "declared  no other fits: " in privacy_report_of(again, 1e-4)
    assert privacy_of(search.best_estimator_.fit(X, Y)).epsilon(1e-4) <= 1.0  # fitted anew, by nobody's search


def test_what_other_estimators_fitted_is_named() -> None:
    many = OneVsRestClassifier(clone(MODEL).set_params(classes=[0, 1])).fit(X, np.arange(len(X)) % 3)
    statement = privacy_of(many.estimators_)
    assert sum("fitted within OneVsRestClassifier" in finding.detail for finding in statement.findings) == 3
    calibrated: Any = CalibratedClassifierCV(clone(MODEL), cv=2).fit(X, Y)
    inner = [one.estimator for one in calibrated.calibrated_classifiers_]
    assert any("fitted within CalibratedClassifierCV" in finding.detail for finding in privacy_of(inner).findings)


def test_folds_without_a_choice_add_up() -> None:
    folds = cross_validate(clone(MODEL), X, Y, cv=3, return_estimator=True)["estimator"]
    assert privacy_of(list(folds)).epsilon(1e-4) > privacy_of(folds[0]).epsilon(1e-4)


class _Wrapper(ClassifierMixin, BaseEstimator):
    """Anybody's own search."""

    def fit(self, X: Any, y: Any) -> Any:
        self.found_ = clone(MODEL).fit(X, y)
        return self


def test_a_wrapper_of_one_s_own_is_named() -> None:
    found = _Wrapper().fit(X, Y).found_
    assert any("fitted within _Wrapper" in finding.detail for finding in privacy_of(found).findings)
    whole = make_pipeline(PrivateStandardScaler(delta=1e-4), clone(MODEL)).fit(X, Y)
    assert not any("fitted within" in finding.detail for finding in privacy_of(whole).findings)
