"""A quantile by noisy bisection of a public grid: few comparisons of the empirical distribution, each with Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

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
    (found,) = search_counts(
        lambda points: np.searchsorted(ranks.points, points, side="right"),
        grid(ranks.low, ranks.high),
        [ranks.rank],
        search_noise_std(ranks.sensitivity, mu),
        generator,
    )
    return found


def search_counts(
    at_most: Callable[[Array], ArrayLike], points: Array, ranks: Sequence[float], noise_std: float, generator: np.random.Generator
) -> list[float]:
    """`search_quantile` of several lists of values at once, of which only counts are asked: 8 times, each time one of every list.

    Args:
        at_most: of one point for each list, shape (k,), to how many of its values are at most that, shape (k,).
        points: the grid, ascending, shape (g,).
        ranks: $p m$ of each list.
        noise_std: of each comparison, in ranks.
        generator: for the noise.
    """
    noises = noise_std * generator.standard_normal((len(ranks), COMPARISONS))
    left, right = np.full(len(ranks), 0), np.full(len(ranks), points.size - 1)
    for noise in noises.T:
        middles = (left + right) // 2
        down = np.asarray(at_most(points[middles])) - np.asarray(ranks) + noise >= 0.0
        left, right = np.where(down, left, middles), np.where(down, middles, right)
    return (0.5 * (points[left] + points[right])).tolist()
