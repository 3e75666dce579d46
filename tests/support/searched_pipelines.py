"""Private searches over pipelines, and what one try of them may cost."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from private_cases import build, two_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from lethe.estimators import LogisticRegression, PrivatePCA, PrivateQuantileClipper, PrivateSearch, PrivateStandardScaler, privacy_of
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.pipelines.searched_steps import SidesInMemory
from lethe.estimators.pipelines.shares import Try, law_of_tries, one_try

DELTA = 1e-5
MODEL = LogisticRegression(feature_norm=2.0, options=EstimatorOptions(mechanism="output_perturbation"))
SCALED = make_pipeline(PrivateStandardScaler(), MODEL)
LONG = make_pipeline(PrivateQuantileClipper(), PrivateStandardScaler(bounds=(-9.0, 9.0)), Normalizer(), PrivatePCA(2), MODEL)
GRID = {"logisticregression__C": [0.1, 1.0]}
SEEDED = {"seed_noise": True, "random_state": 0}


def search(estimator: Any = SCALED, candidates: Any = GRID, **parameters: Any) -> PrivateSearch:
    return build(PrivateSearch, estimator, candidates, **{"tries": 3.0, "delta": DELTA, **parameters})


def watched(monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> tuple[PrivateSearch, list[Any]]:
    """A fitted search, and the pipelines it fitted as they were before their statements were put in place; at least two."""
    seen: list[Any] = []
    measure = SidesInMemory.score

    def scored(self: SidesInMemory, model: Any) -> float:
        seen.append(pickle.loads(pickle.dumps(model)))
        return measure(self, model)

    monkeypatch.setattr(SidesInMemory, "score", scored)
    for seed in range(100):  # the number of tries is random
        seen.clear()
        found = search(**parameters, seed_noise=True, random_state=seed).fit(*two_blobs())
        if 2 <= len(seen) <= 6:
            return found, seen
    raise AssertionError("no search of two to six tries")


def a_try(gaussian: bool, *, tries: float = 3.0) -> Try:
    return one_try(PrivacyBudget(epsilon=1.0, delta=DELTA), law_of_tries(tries), gaussian=gaussian)


def overspent(one: Try, fitted: list[Any]) -> bool:
    """Whether some pipeline cost more than a try may, by the sum over its steps that `privacy_of` makes."""
    return not all(one.covers(privacy_of(pipeline).planned) for pipeline in fitted)
