r"""The median of block moments by noisy bisection of a public geometric grid, and how often it may be wrong."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.stats import binom, norm

from lethe.calculus.domains import outside, require_positive
from lethe.heavy_tailed.inputs import Array

COMPARISONS = 8
_BAD = 0.125  # of one block, by Chebyshev's inequality where E u^2k <= (1 + q/32) (E u^k)^2
_MOST_BLOCKS = 10**9

End = Literal["low", "high"]


def block_moments(sizes: Array, order: float, blocks: int) -> Array:
    r"""$(\frac1q\sum_{i \in B_j}u_i^k)^{1/k}$ of b consecutive blocks of $q = \lfloor n/b\rfloor$; the last n mod b sizes are left out.

    Args:
        sizes: finite, >= 0, shape (n,).
        order: k.
        blocks: b, at most n.
    """
    size = len(sizes) // blocks
    table = sizes[: blocks * size].reshape(blocks, size)
    largest = table.max(axis=1)
    units = table / np.where(largest > 0.0, largest, 1.0)[:, None]  # no power overflows, and one that underflows adds nothing
    with np.errstate(under="ignore"):
        return largest * np.mean(units**order, axis=1) ** (1.0 / order)


def searched_median(
    values: Array, low: float, high: float, noise_std: float, generator: np.random.Generator
) -> tuple[int, End | None, float]:
    r"""The cell of the grid $low\,c^i$, $c = (high/low)^{1/256}$, that 8 noisy comparisons lead to.

    At the middle of the remaining grid: down if $\#\{j : v_j \le g\} + N(0, \sigma^2) \ge b/2$, else up.

    Args:
        values: v_j, shape (b,).
        low, high: the ends of the grid, 0 < low < high, in the unit of the values.
        noise_std: $\sigma \ge 0$ of each comparison, in records.
        generator: of the noise.
    Returns:
        The cell's number in 0..255; "low" or "high" if it is the first or the last; c.
    """
    ratio = (high / low) ** 2.0**-COMPARISONS
    left, right = 0, 2**COMPARISONS
    for noise in (noise_std * generator.standard_normal(COMPARISONS)).tolist():
        middle = (left + right) // 2
        if np.count_nonzero(values <= low * ratio**middle) + noise >= 0.5 * len(values):
            right = middle
        else:
            left = middle
    end: End | None = "low" if left == 0 else "high" if right == 2**COMPARISONS else None
    return left, end, ratio


def failure_probability(blocks: int, noise_std: float) -> float:
    r"""$\min_a P(\mathrm{Bin}(b, \frac18) > a) + 8\,\Phi(-(b/2 - a)/\sigma)$, at most 1.

    Either more than a blocks stray, or a noise outweighs the others.

    Args:
        blocks: b.
        noise_std: $\sigma \ge 0$ of each comparison.
    """
    # The distribution is 1e-12 of its mass wide at most: past that, allowing more bad blocks only takes room from the noise.
    last = min(math.ceil(0.5 * blocks) - 1, int(binom.isf(1e-12, blocks, _BAD)) + 1)
    allowed = np.unique(np.linspace(math.floor(_BAD * blocks), max(last, 0), 512).astype(np.int64))
    room = 0.5 * blocks - allowed
    noisy = COMPARISONS * norm.sf(room / noise_std) if noise_std > 0.0 else np.zeros(len(allowed))
    wrong = np.where(room > 0.0, binom.sf(allowed, blocks, _BAD) + noisy, 1.0)
    return min(float(np.min(wrong)), 1.0)


@lru_cache(maxsize=256)
def blocks_for(failure: float, noise_std: float) -> int:
    """An odd number of blocks whose `failure_probability` is at most that: the smallest of a sequence that grows by an eighth.

    Raises:
        InputError: the probability is not in (0, 1), or even 10^9 blocks are too few.
    """
    wanted = require_positive("failure", failure)
    if wanted >= 1.0:
        raise outside("failure", failure, "a number above 0 and below 1")
    blocks = 1
    while blocks <= _MOST_BLOCKS:
        if failure_probability(blocks, noise_std) <= wanted:
            return blocks
        blocks += max(2, 2 * (blocks // 16))
    raise outside("rho", f"one with noise {noise_std:g} in a count", "a larger one: the noise outweighs a billion blocks")
