"""The noise of a search's score, as it was drawn, and against the law of one try."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from how_many import by_night
from scipy import stats

from lethe.calculus.guarantees import GDP
from lethe.estimators import LinearRegression, LogisticRegression, PrivateSearch
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.pipelines.shares import law_of_tries, one_try
from lethe.estimators.private_estimator import randomness

RECORDS, ASIDE, BOUND = 60, 12, 2.0
RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((RECORDS, 2))
LABELS, NUMBERS = RNG.integers(2, size=RECORDS), 1.5 * RNG.standard_normal(RECORDS)
ONCE = 1.000002  # tries: a second one of half a million


SCORED: list[int] = []  # one entry for each model that was asked to predict


class _AlwaysFirst(LogisticRegression):
    """A model that predicts the first class, whatever it learned: the score before noise is known."""

    def predict(self, X: Any) -> Any:
        SCORED.append(X.shape[0])
        return np.zeros(X.shape[0], dtype=np.int64)


class _AlwaysZero(LinearRegression):
    """The same of numbers."""

    def predict(self, X: Any) -> Any:
        SCORED.append(X.shape[0])
        return np.zeros(X.shape[0])


class _Watched(np.random.Generator):
    """Keeps the single normal numbers that it gave; models draw theirs in arrays."""

    singles: ClassVar[list[float]] = []

    def standard_normal(self, *sizes: Any, **options: Any) -> Any:
        drawn = super().standard_normal(*sizes, **options)
        if not np.ndim(drawn):
            self.singles.append(float(drawn))
        return drawn


def search(labelled: bool, tries: float, **parameters: Any) -> PrivateSearch:
    model: Any = _AlwaysFirst if labelled else _AlwaysZero
    public: dict[str, Any] = {"feature_norm": 2.0, "options": EstimatorOptions(mechanism="output_perturbation")} | (
        {} if labelled else {"target_bound": 3.0}
    )
    options = {"tries": tries, "delta": 1e-6, "held_out": ASIDE / RECORDS, "score_bound": None if labelled else BOUND} | parameters
    found = PrivateSearch(model(**public), {"fit_intercept": [True, False]}, **options)
    return found.fit(ROWS, LABELS if labelled else NUMBERS)


def score_before_noise(labelled: bool, aside: np.ndarray) -> float:
    if labelled:
        return float(np.mean(LABELS[aside] == 0))
    return float(np.mean([1.0 - min(abs(number) / BOUND, 1.0) ** 2 for number in NUMBERS[aside]]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("tries", [ONCE, 6.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_score_has_the_stated_noise(seed: int, tries: float, labelled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One normal number for each try, none of them shared, and what is released is the largest of the scores with it."""
    SCORED.clear()
    _Watched.singles.clear()
    with monkeypatch.context() as patched:
        patched.setattr(np.random, "default_rng", lambda seed: _Watched(np.random.PCG64(seed)))
        found = search(labelled, tries, random_state=seed, seed_noise=True)
    normals = list(_Watched.singles)
    assert len(normals) == len(set(normals)) == len(SCORED) > 0
    assert set(SCORED) == {ASIDE}
    true = score_before_noise(labelled, randomness(seed, True, RECORDS).order[:ASIDE])
    assert found.best_score_ == pytest.approx(true + found.score_noise_std_ * max(normals), rel=1e-12)
    one = one_try(PrivacyBudget(epsilon=1.0, delta=1e-6), law_of_tries(tries), gaussian=True)
    assert isinstance(one.guarantee, GDP)
    assert found.score_noise_std_ * one.guarantee.mu == pytest.approx(1.0 / ASIDE, rel=1e-6)


def test_fresh_noise_has_the_same_law() -> None:
    """Searches of one try: by chance one in a hundred million has a sum of squares so far off, and no two the same noise."""
    count = 30 if by_night() else 10
    found = [search(True, ONCE, random_state=7) for _ in range(count)]
    aside = randomness(7, False, RECORDS).order[:ASIDE]
    normals = (np.array([one.best_score_ for one in found]) - score_before_noise(True, aside)) / found[0].score_noise_std_
    assert len(set(normals.tolist())) == count
    assert 0.5e-8 < float(stats.chi2.cdf(np.sum(normals**2), count)) < 1.0 - 0.5e-8
