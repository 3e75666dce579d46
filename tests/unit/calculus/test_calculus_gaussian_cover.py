"""Gaussian covers: below no guarantee that they stand for, close to the smallest, and right for choices made along the way."""

import math

import numpy as np
import pytest
from helpers import make_run
from how_many import by_night
from scipy.stats import norm

import lethe
from lethe.calculus.conversions import gdp_delta
from lethe.calculus.filters import covering_mu, pure_mu
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, RDPCurve, WithSlack
from lethe.errors import InputError


def pure_delta(epsilon: float, level: float) -> float:
    """The exact profile of randomised response with this epsilon, which has the largest of all epsilon-DP mechanisms."""
    return max(0.0, (math.exp(epsilon) - math.exp(level)) / (1.0 + math.exp(epsilon)))


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.1, 1.0, 3.0, 10.0])
def test_pure_dp_is_covered_and_by_no_smaller_mu(epsilon) -> None:
    mu = pure_mu(epsilon)
    levels = [epsilon * share for share in np.linspace(0.0, 1.2, 200)]
    assert all(gdp_delta(mu, level) >= pure_delta(epsilon, level) * (1 - 1e-9) for level in levels)
    assert any(gdp_delta(mu * 0.99, level) < pure_delta(epsilon, level) for level in levels)


def test_pure_dp_at_its_ends() -> None:
    assert pure_mu(0.0) == 0.0
    assert all(gdp_delta(pure_mu(40.0), level) >= pure_delta(40.0, level) * (1 - 1e-9) for level in np.linspace(0.0, 41.0, 200).tolist())
    assert pure_mu(math.inf) == math.inf
    with pytest.raises(InputError):
        pure_mu(-1.0)


SAMPLED = lethe.certify(
    make_run(records=6000, batches=lethe.batches.Poisson(60), noise_multiplier=1.0, release="all", neighbours="add_or_remove"), delta=1e-6
).guarantee
COVERED = {
    "gaussian": (GDP(1.0), 1e-8),
    "zcdp": (ZCDP(0.05), 1e-9),
    "mixture": (GDPMixture((0.1, 3.0), (0.99, 0.01)), 1e-7),
    "renyi": (RDPCurve((2.0, 8.0, 32.0, 128.0), (0.02, 0.08, 0.4, 2.0)), 1e-8),
    "with slack": (WithSlack(GDP(0.3), 1e-9), 1e-8),
    "sampled": (SAMPLED, 1e-8),
}
# The profile of sampled steps is dear, and a profile like any other.
BY_DAY = [pytest.param(name, marks=pytest.mark.nightly if name == "sampled" else []) for name in COVERED]


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_DAY)
def test_a_cover_is_nowhere_below(name) -> None:
    """Covers are up to 1.5 % larger than they must be; at 0.94 of epsilon that of the mixture is off by less than 0.5 %."""
    guarantee, slack = COVERED[name]
    mu, end = covering_mu(guarantee, slack), guarantee.epsilon(slack)
    levels = np.random.default_rng(3).uniform(0.0, 1.3 * end, 120 if by_night() else 5)
    for level in [0.0, 0.94 * end, *levels.tolist()]:
        assert guarantee.delta(level) <= (slack + (1 - slack) * gdp_delta(mu, level)) * (1 + 1e-9), level


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_DAY)
def test_a_cover_is_close_to_the_smallest(name) -> None:
    guarantee, slack = COVERED[name]
    mu = 0.97 * covering_mu(guarantee, slack)
    levels = np.random.default_rng(3).permutation(np.linspace(0.0, guarantee.epsilon(slack), 400))  # one is soon found
    assert any(guarantee.delta(level) > slack + (1 - slack) * gdp_delta(mu, level) for level in levels.tolist())


def test_covers_at_their_ends() -> None:
    assert covering_mu(GDP(1.0), 1.0) == 0.0
    assert covering_mu(GDP(0.0), 1e-9) == 0.0
    assert covering_mu(GDP(1.0), 0.0) == math.inf
    assert covering_mu(ApproxDP(1.0, 1e-6), 1e-7) == math.inf


def hockey_stick(mu: float, level: np.ndarray) -> np.ndarray:
    r"""$E_P(1 - e^{\epsilon - L})_+$ of a Gaussian pair at any real epsilon."""
    if mu == 0.0:
        return np.maximum(0.0, -np.expm1(level))
    return norm.cdf(mu / 2 - level / mu) - np.exp(level) * norm.cdf(-mu / 2 - level / mu)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("first", "second", "slack"), [(0.5, 0.5, 0.02), (0.2, 0.8, 0.1), (1.0, 1.0, 0.001)])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.5])
def test_choosing_along_the_way_gains_nothing_on_the_bound(first, second, slack, epsilon) -> None:
    """A first Gaussian release, and then what is worst for it: the second, open failing, one after the other, or nothing.

    The worst case is integrated (with kinks: to about 1e-4). The bound holds for limits on mu^2 and on the slack that are fixed
    beforehand; where the two may be exchanged along the way, each as bad as the other, the worst case is above that of either.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(181)
    loss = first * first / 2 + first * points  # the law of the privacy loss under P
    level, weights = epsilon - loss, weights / weights.sum()
    stop, more = np.maximum(0.0, -np.expm1(level)), hockey_stick(second, level)
    best = float(weights @ np.max([stop, more, slack + (1 - slack) * stop, slack + (1 - slack) * more], axis=0))
    bound = slack + (1 - slack) * gdp_delta(math.hypot(first, second), epsilon)
    assert best <= bound * (1 + 1e-6)
    assert best > 0.999 * bound
    # Either the second release or twice the slack, whichever is worse: more than the larger of the two alone.
    exchange = max(float(weights @ more) - float(weights @ stop), 1e-9)
    either = float(weights @ np.maximum(more, exchange + (1 - exchange) * stop))
    assert either > max(float(weights @ more), float(weights @ (exchange + (1 - exchange) * stop)))
