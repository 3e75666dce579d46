"""Attack scores against published digits and their formulas; what an attack achieved."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from lethe.audit.statistics.attack import attack
from lethe.audit.statistics.scores import lira_offline, lira_online, rmia, scaled_confidence
from lethe.errors import InputError


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


def test_an_attack_is_described_with_intervals() -> None:
    found = attack(np.arange(1000.0), np.arange(1000.0) + 500.0, rates=(0.1, 0.0, 1.0))
    pairs = np.arange(1000.0)[:, None] < np.arange(1000.0) + 500.0
    ties = np.arange(1000.0)[:, None] == np.arange(1000.0) + 500.0
    assert found.area == pytest.approx(pairs.mean() + 0.5 * ties.mean(), abs=1e-12)
    tenth, never, always = found.detections
    assert (tenth.false_positive_rate, tenth.true_positive_rate) == (0.1, 0.6)
    assert tenth.low == pytest.approx(stats.binomtest(600, 1000).proportion_ci().low, rel=1e-8)
    assert tenth.high == pytest.approx(stats.binomtest(600, 1000).proportion_ci().high, rel=1e-8)
    assert (never.false_positive_rate, never.true_positive_rate) == (0.0, 0.5)
    assert (always.false_positive_rate, always.true_positive_rate) == (1.0, 1.0)
    assert not hasattr(found, "epsilon")


def test_ties_never_raise_the_false_positive_rate() -> None:
    found = attack(np.array([0.0, 1.0, 1.0, 1.0]), np.array([1.0, 2.0]), rates=(0.25, 0.5))
    assert [each.false_positive_rate for each in found.detections] == [0.0, 0.0]
    assert [each.true_positive_rate for each in found.detections] == [0.5, 0.5]


def test_what_is_refused() -> None:
    for logits, labels in (([[1.0]], [0]), ([[1.0, 2.0]], [2]), ([[1.0, 2.0]], [-1]), ([[1.0, 2.0]], [0.0]), ([[1.0, 2.0]], [0, 1])):
        with pytest.raises(InputError, match="labels"):
            scaled_confidence(logits, labels)
    with pytest.raises(InputError, match="same score"):
        lira_offline([1.0], [[2.0], [2.0]])
    with pytest.raises(InputError, match="column"):
        lira_offline([1.0, 2.0], [[2.0], [3.0]])
    with pytest.raises(InputError, match="models"):
        lira_offline([1.0], [[2.0]])
    with pytest.raises(InputError, match="probabilities"):
        rmia([1.2], [0.5], [0.5], [0.5])
    with pytest.raises(InputError, match="as many"):
        rmia([0.2], [0.5, 0.5], [0.5], [0.5])
    with pytest.raises(InputError, match="rates"):
        attack([0.0], [1.0], rates=(2.0,))
