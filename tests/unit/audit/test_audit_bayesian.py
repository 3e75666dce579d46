"""The credible limit against published digits and against draws from the posterior."""

import numpy as np
import pytest

from lethe.audit.statistics.bayesian import _allowed, bayesian_epsilon
from lethe.audit.statistics.counts import Tally
from lethe.errors import InputError


def tally(false_positives: int, false_negatives: int, trials: int) -> Tally:
    return Tally(out_trials=trials, false_positives=false_positives, in_trials=trials, false_negatives=false_negatives)


@pytest.mark.parametrize(
    ("counts", "epsilon"), [(tally(5, 120, 1000), 4.495574), (tally(300, 320, 1000), 0.737153), (tally(0, 0, 500), 6.513148)]
)
def test_values(counts: Tally, epsilon: float) -> None:
    assert bayesian_epsilon(counts, delta=1e-5, level=0.05) == pytest.approx(epsilon, abs=1e-6)  # six decimals are given


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("false_positives", "false_negatives"), [(5, 12), (0, 40), (90, 0), (50, 50), (100, 100), (0, 0)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.3, 0.1), (2.0, 1e-5), (5.0, 0.3)])
def test_probability_against_draws(false_positives: int, false_negatives: int, epsilon: float, delta: float) -> None:
    generator, trials, draws = np.random.default_rng(1), 100, 200_000
    x = generator.beta(0.5 + false_negatives, 0.5 + trials - false_negatives, draws)
    y = generator.beta(0.5 + false_positives, 0.5 + trials - false_positives, draws)
    grow = np.exp(epsilon)
    # Both directions of both tests, guess and opposite guess: the definition of (epsilon, delta)-DP.
    allowed = (1 - x <= grow * y + delta) & (y <= grow * (1 - x) + delta) & (x <= grow * (1 - y) + delta) & (1 - y <= grow * x + delta)
    assert _allowed(tally(false_positives, false_negatives, trials), epsilon, delta) == pytest.approx(
        allowed.mean(), abs=5 * 0.5 / draws**0.5
    )  # five standard errors at most


def test_edges() -> None:
    assert bayesian_epsilon(tally(50, 50, 100), delta=0.2, level=0.05) == 0.0
    # A continuous posterior never sits at epsilon 0, so even a coin has a limit above it: credible is not certified.
    assert 0.0 < bayesian_epsilon(tally(50, 50, 100), delta=0.0, level=0.05) < 0.02
    assert bayesian_epsilon(tally(5, 120, 1000), delta=1e-5, level=0.01) < 4.495574
    with pytest.raises(InputError, match="tally"):
        bayesian_epsilon((5, 120, 1000), delta=1e-5, level=0.05)  # pyright: ignore[reportArgumentType]
