"""Liang et al. 2025, Lemma 3.2 at z = 0 and equal iterates: a Gaussian mechanism on a sampled batch, bounded in one direction only."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from theorem_bounds import sampled_gaussian_renyi

from lethe.calculus.sampled.order import largest_order, order_allowed


def from_the_sampled_law(rate: float, noise: float, order: float) -> float:
    r"""$D_\alpha(N(0, z^2) \| (1-q)N(0, z^2) + qN(1, z^2))$, (35), by quadrature."""

    def integrand(x: float) -> float:
        ratio = math.log1p(rate * math.expm1((2.0 * x - 1.0) / (2.0 * noise**2)))
        return float(stats.norm.pdf(x, scale=noise)) * math.exp((1.0 - order) * ratio)

    value, _ = integrate.quad(integrand, -12.0 * noise, 12.0 * noise, limit=400, epsabs=1e-15)
    return math.log(value) / (order - 1.0)


# (10) in units of 2C/b: 2 alpha C^2/(n b sigma^2) is q times alpha/(2 z^2), z = b sigma/(2C), beta -> 1.
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize(("noise", "order"), [(0.7, 2.0), (0.5, 8.0), (2.0, 16.0), (6.0, 3.0)])
def test_the_lemma_bounds_the_divergence_from_the_sampled_law_and_not_of_it(rate: float, noise: float, order: float) -> None:
    """Lemma A.9, convexity in the second argument, gives (10) one way; the other way round it is exceeded where e^((alpha-1)D) is large."""
    claimed = rate * order / (2.0 * noise**2)
    assert from_the_sampled_law(rate, noise, order) <= claimed * (1 + 1e-9)
    other = sampled_gaussian_renyi(rate, noise, int(order))
    # log(1 - q + q e^u) > q u: Jensen's inequality, strict for every u > 0; u = (alpha - 1) alpha/(2 z^2) is the loss of a drawn record.
    loss = (order - 1.0) * order / (2.0 * noise**2)
    assert other <= math.log1p(rate * math.expm1(loss)) / (order - 1.0) * (1 + 1e-9)
    if loss > 100.0:
        assert other > 1.5 * claimed


def test_the_claim_of_one_step_is_false_as_a_bound_of_privacy() -> None:
    """q = .01, z = .5, alpha = 8: .16 claimed, 10.7 one way."""
    assert pytest.approx(0.16) == 0.01 * 8 / (2 * 0.25)
    assert sampled_gaussian_renyi(0.01, 0.5, 8) > 10.7


def test_the_restricted_claim_holds_both_ways() -> None:
    """(11), Lemma A.12: 2 alpha q^2/z^2 within alpha*, q <= 1/5, z > 4."""
    for rate, noise in ((0.2, 4.5), (0.05, 6.0), (0.01, 10.0)):
        for order in range(2, math.floor(largest_order(rate, noise)) + 1):
            assert bool(np.all(order_allowed(rate, noise, float(order))))
            bound = 2.0 * order * rate**2 / noise**2
            assert max(sampled_gaussian_renyi(rate, noise, order), from_the_sampled_law(rate, noise, float(order))) <= bound
