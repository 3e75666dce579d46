"""Attack scores against published digits and their formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from lethe.audit.statistics.scores import lira_offline, lira_online, rmia, scaled_confidence


def test_values() -> None:
    assert scaled_confidence([[2.0, 0.5, -1.0]], [0])[0] == pytest.approx(1.298587, abs=5e-7)  # six decimals are given
    assert lira_online([2.0], [[1.0], [2.0], [3.0]], [[-1.0], [0.0], [1.0]])[0] == pytest.approx(3.0, abs=5e-7)
    assert lira_online([2.0], [[1.0], [2.0], [4.0]], [[-1.0], [0.0], [2.0]])[0] == pytest.approx(0.857143, abs=5e-7)
    assert lira_offline([2.0], [[-1.0], [0.0], [2.0]])[0] == pytest.approx(-0.095107, abs=5e-7)
    assert rmia([0.9], [0.5], [0.8, 0.3, 0.95], [0.7, 0.4, 0.5])[0] == pytest.approx(0.666667, abs=5e-7)


def test_confidence_is_the_logit_of_the_probability_and_does_not_overflow() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 5))
    labels = np.arange(20) % 5
    probability = special.softmax(logits, axis=1)[np.arange(20), labels]
    assert scaled_confidence(logits, labels) == pytest.approx(special.logit(probability), rel=1e-10)  # cancellation near 1
    assert scaled_confidence([[1000.0, 0.0]], [0])[0] == 1000.0


def test_lira_is_a_ratio_of_normal_densities() -> None:
    generator = np.random.default_rng(1)
    observed, inside, out = generator.normal(size=4), generator.normal(size=(9, 4)) + 1, generator.normal(size=(8, 4))
    for pooled in (False, True):
        first = np.sqrt(inside.var(axis=0).mean()) if pooled else inside.std(axis=0)
        second = np.sqrt(out.var(axis=0).mean()) if pooled else out.std(axis=0)
        expected = stats.norm.logpdf(observed, inside.mean(axis=0), first) - stats.norm.logpdf(observed, out.mean(axis=0), second)
        assert lira_online(observed, inside, out, pooled_variance=pooled) == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 10**6))
def test_rmia_counts_the_population(records: int, population: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, px, z, pz = (generator.uniform(0.01, 1.0, size) for size in (records, records, population, population))
    marginal = lambda p: (1.3 * p + 0.7) / 2  # noqa: E731
    expected = ((x / marginal(px))[:, None] / (z / marginal(pz)) >= 1.0).mean(axis=1)
    assert rmia(x, px, z, pz) == pytest.approx(expected, abs=1e-12)
