"""A quantile by noisy bisection of a public grid: few comparisons of the empirical distribution, each with Gaussian noise."""

from __future__ import annotations

import math

import numpy as np

from lethe.calculus.domains import require_positive
from lethe.calculus.guarantees import GDP, NotPrivate
from lethe.calculus.rounding import round_up
from lethe.mechanisms.base import Array, gaussian_guarantee
from lethe.mechanisms.quantiles.ranks import RankedValues, rank_sensitivity
from lethe.run.run import Neighbours

COMPARISONS = 8


def grid(low: float, high: float) -> Array:
    """The public grid: equally spaced in the coordinate of the range, shape (2^8 + 1,), ends included."""
    return np.linspace(low, high, 2**COMPARISONS + 1)


def search_noise_std(sensitivity: float, mu: float) -> float:
    r"""$\sigma$ of `search_quantile`, in ranks, rounded up."""
    return round_up(sensitivity * math.sqrt(COMPARISONS) / require_positive("mu", mu), 4e-15)


def searched_guarantee(quantile: float, noise_std: float, neighbours: Neighbours) -> GDP | NotPrivate:
    r"""What `search_quantile` of the p quantile costs with noise $\sigma$ in ranks: $\mu = \Delta\sqrt T/\sigma$, rounded up.

    Args:
        quantile: p in (0, 1).
        noise_std: $\sigma \ge 0$, in ranks.
        neighbours: replace_one or zero_out.
    Raises:
        InputError: an argument is out of its range.
    """
    sensitivity = rank_sensitivity(quantile, neighbours)
    return gaussian_guarantee(round_up(sensitivity * math.sqrt(COMPARISONS), 4e-16), noise_std)


def search_quantile(ranks: RankedValues, mu: float, generator: np.random.Generator) -> float:
    r"""Bisection: at the middle point g of the remaining grid, go down if $v(g) + N(0, \sigma^2) \ge 0$, else up.

    $$\sigma = \Delta\sqrt{T}/\mu,\qquad T = 8\text{ comparisons},$$

    with v of `lethe.mechanisms.quantiles.ranks` (counting $z_i \le g$) and its sensitivity $\Delta$.

    Formal guarantee: $\mu$-GDP. Proof: given the earlier answers, the next point is fixed, one record moves v there by at most $\Delta$,
    so each noisy value is $(\mu/\sqrt T)$-GDP, and adaptive composition adds the squares. The answers determine the result.

    Args:
        ranks: the data.
        mu: > 0.
        generator: for the noise.
    Returns:
        The middle of the cell found, in the coordinate of the range.
    Raises:
        InputError: mu is outside its range.
    Reference: Smith 2011 and Huang, Liang, Yi 2021, arXiv:2106.00463 (noisy bisection); Dong, Roth, Su 2019, arXiv:1905.02383, Cor. 3.3.
    """
    points, noise_std = grid(ranks.low, ranks.high), search_noise_std(ranks.sensitivity, mu)
    left, right = 0, points.size - 1
    for noise in noise_std * generator.standard_normal(COMPARISONS):
        middle = (left + right) // 2
        if np.searchsorted(ranks.points, points[middle], side="right") - ranks.rank + noise >= 0.0:
            right = middle
        else:
            left = middle
    return float(0.5 * (points[left] + points[right]))
