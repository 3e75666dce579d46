"""A private search: its noise as it was drawn, what one try may cost, and the guarantee against the exact law of the released score."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from how_many import by_night
from private_cases import cloned, two_blobs
from scipy import stats

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.estimators import LinearRegression, LogisticRegression, PrivateSearch
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.pipelines.shares import GAUSSIAN, Try, law_of_tries, one_try
from lethe.estimators.private_estimator import randomness
from lethe.mechanisms.selection import selection_guarantee

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


MODEL = LogisticRegression(feature_norm=4.0, options=EstimatorOptions(mechanism="output_perturbation"))


def generating(law: Any, shares: np.ndarray) -> np.ndarray:
    """E[q^K], summed over K."""
    counts = np.arange(1, 500)  # of a geometric law with mean 10 what is left weighs 1e-23
    weights = np.array([law.probability(int(count)) for count in counts])
    return (weights[:, None] * shares[None, :] ** counts[:, None]).sum(axis=0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_stated_guarantee_holds_for_the_exact_law_of_the_best_score(epsilon: float, gaussian: bool) -> None:
    """Where every fit predicts the same, the released score is the best of K normal numbers: P(score < x) = E[Phi(x / std)^K].

    A record among those that score moves their mean by 1/m. That law, told apart by cells, against the stated point; and with a third
    of the noise the point fails, so the check can.
    """
    delta, m = 1e-2, 50
    law = law_of_tries(10.0)
    one = one_try(PrivacyBudget(epsilon=epsilon, delta=delta), law, gaussian=gaussian)

    def exact_delta(noise_std: float) -> float:
        edges = np.linspace(-8.0 * noise_std, 8.0 * noise_std + 1.0 / m, 4001)
        laws = [np.diff(generating(law, stats.norm.cdf(edges, shift, noise_std)), prepend=0.0, append=1.0) for shift in (0.0, 1.0 / m)]
        return max(float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) for p, q in (laws, laws[::-1]))

    asked = {"epsilon": epsilon, "delta": delta, "held_out": m / 400, "options": EstimatorOptions(allow_large_delta=True)}
    honest = PrivateSearch(MODEL, {"C": [0.01, 1.0, 100.0]}, **asked).fit(*two_blobs())
    stated = (
        honest.score_noise_std_
        if gaussian
        else 1.0 / m / PrivacyBudget(epsilon=one.target.epsilon_bound, delta=one.target.delta_bound).total_mu
    )
    if gaussian:
        assert stated == pytest.approx(1.0 / m / mu_of(one.guarantee), rel=1e-6)
    assert exact_delta(stated) <= delta
    assert exact_delta(stated / 3.0) > delta


@pytest.mark.sampled(3)
@pytest.mark.parametrize("epsilon", [1e-2, 0.5, 1.0, 8.0])
@pytest.mark.parametrize("gaussian", [True, False])
def test_one_try_uses_up_the_budget_and_no_more(epsilon: float, gaussian: bool) -> None:
    law = law_of_tries(10.0)
    one = one_try(PrivacyBudget(epsilon=epsilon, delta=1e-5), law, gaussian=gaussian)
    total = selection_guarantee(one.guarantee, law, delta=1e-5).epsilon(1e-5)
    assert 0.999 * epsilon <= total <= epsilon
    assert one.target.epsilon_bound < epsilon
    assert one.covers(one.guarantee)


def test_what_a_fit_costs_is_compared_with_what_a_try_may() -> None:
    gaussian = Try(guarantee=GDP(0.2), target=ApproxDP(0.7, 1e-5))
    assert gaussian.covers(GDP(0.2))
    assert not gaussian.covers(GDP(0.2000001))
    assert not gaussian.covers(ApproxDP(1e-9, 1e-9))  # stronger at a point is not stronger
    point = Try(guarantee=ApproxDP(0.7, 1e-5), target=ApproxDP(0.7, 1e-5))
    assert point.covers(ApproxDP(0.7, 1e-5))
    assert point.covers(GDP(0.1))
    assert not point.covers(ApproxDP(0.7, 1e-4))
    assert not point.covers(GDP(0.3))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mechanism", sorted(GAUSSIAN - {"adassp"}))
def test_the_mechanisms_called_gaussian_are(mechanism: str) -> None:
    model = cloned(MODEL).set_params(options__mechanism=mechanism).fit(*two_blobs())
    assert isinstance(model.statement_.guarantee, GDP)
