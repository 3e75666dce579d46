"""Laws of the number of tries: sums of their probabilities against the closed forms, and draws against the probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from lethe.mechanisms.repetitions import PoissonRepetitions, TruncatedNegativeBinomial, draw_tries

LAWS = (
    *(TruncatedNegativeBinomial(eta=eta, gamma=gamma) for eta in (-0.9, -0.5, 0.0, 1e-9, 1.0, 3.5) for gamma in (0.9, 0.2, 0.03)),
    PoissonRepetitions(rate=0.2),
    PoissonRepetitions(rate=12.0),
)
COUNTS = np.arange(4000)


def weights(law):
    return np.array([law.probability(int(count)) for count in COUNTS])


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_probabilities_sum_to_one_and_give_the_mean(law):
    assert weights(law).sum() == pytest.approx(1.0, rel=1e-9)
    assert (weights(law) * COUNTS).sum() == pytest.approx(law.mean, rel=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("delta", [1e-6, 0.01, 0.7])
def test_the_chance_of_a_hit_and_the_law_without_one(law, delta):
    survived = weights(law) * (1.0 - delta) ** COUNTS
    hit = law.hit_probability(delta)
    assert hit >= (weights(law) * -np.expm1(COUNTS * np.log1p(-delta))).sum() * (1.0 - 1e-9)
    assert hit == pytest.approx(1.0 - survived.sum(), rel=1e-6, abs=1e-11)
    assert weights(law.thinned(delta)) == pytest.approx(survived / survived.sum(), abs=1e-9)


def test_known_members():
    assert weights(TruncatedNegativeBinomial(eta=1.0, gamma=0.2)) == pytest.approx(stats.geom.pmf(COUNTS, 0.2), abs=1e-12)
    assert weights(TruncatedNegativeBinomial(eta=0.0, gamma=0.2))[1:] == pytest.approx(stats.logser.pmf(COUNTS[1:], 0.8), abs=1e-12)
    assert weights(PoissonRepetitions(rate=3.0)) == pytest.approx(stats.poisson.pmf(COUNTS, 3.0), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("law", [LAWS[2], LAWS[6], LAWS[8], LAWS[13], LAWS[16], LAWS[-1]], ids=repr)
def test_draws_follow_the_law(law):
    generator = np.random.default_rng(0)
    draws = np.array([draw_tries(law, generator) for _ in range(5000)])
    for most in (0, 1, 2, 5, 20):
        assert np.mean(draws <= most) == pytest.approx(weights(law)[: most + 1].sum(), abs=5.0 * 0.5 / math.sqrt(5000))


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0, 3.0])
@pytest.mark.parametrize("mean", [1.5, 10.0, 1000.0])
def test_a_law_of_a_given_mean(eta, mean):
    assert TruncatedNegativeBinomial.of_mean(mean, eta=eta).mean == pytest.approx(mean, rel=1e-9)
