r"""A law that is stochastically larger than the sum of many touch costs, by Chernoff's bound at every value.

$$P\Big(\sum_e c_e \ge x\Big) \le \inf_{t > 0} \exp(M(t) - t x), \qquad M(t) = \log\mathbb{E}\exp\Big(t \sum_e c_e(j_e, j_{e+1})\Big)$$

The positions form a chain, so $M$ is a product of matrices, exact but for rounding. Where a run has many passes the sum is close to its
mean and little is lost, while the grid of `squared_law` would have to be coarse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lethe.theorems.shift.scaled import Floats
from lethe.theorems.shuffled.participation_costs import TouchCosts

# Values of t, of x, and how far x goes, in standard deviations of the sum as if touches were independent.
_TILTS, _VALUES, _REACH = 64, 400, 16.0
# Costs that are all but equal: the tilts are bounded anyway.
_LEAST_SPREAD = 1e-9
# What the rounding of thousands of matrix products may have taken from M(t), many times over.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generating:
    """exp(t sum) given the bucket of the current touch, by t and bucket, as a positive matrix times exp(scale)."""

    tilts: Floats
    matrix: Floats
    scale: Floats

    @classmethod
    def start(cls, tilts: Floats, weights: Floats) -> _Generating:
        return cls(tilts=tilts, matrix=np.tile(weights, (tilts.size, 1)), scale=np.zeros(tilts.size))

    def moved(self, costs: Floats, weights: Floats, times: int = 1) -> _Generating:
        """After that many moves at costs[from, to] to buckets drawn by `weights`."""
        most = float(costs.max())
        kernel = np.exp(self.tilts[:, np.newaxis, np.newaxis] * (costs - most)) * weights
        matrix, scale = self.matrix, self.scale + times * self.tilts * most
        power, exponent = kernel, np.zeros(self.tilts.size)
        # Powers of two of the kernel, each scaled to a largest entry of 1, so that nothing under- or overflows.
        while times:
            if times % 2:
                matrix = np.matmul(matrix[:, np.newaxis, :], power)[:, 0, :]
                scale = scale + exponent
                largest = matrix.max(axis=1)
                matrix, scale = matrix / largest[:, np.newaxis], scale + np.log(largest)
            times //= 2
            if times:
                power = np.matmul(power, power)
                largest = power.max(axis=(1, 2))
                power, exponent = power / largest[:, np.newaxis, np.newaxis], 2.0 * exponent + np.log(largest)
        return _Generating(tilts=self.tilts, matrix=matrix, scale=scale)

    def ended(self, costs: Floats) -> Floats:
        """log E exp(t sum) after a last cost by bucket."""
        return self.scale + np.log(np.sum(self.matrix * np.exp(self.tilts[:, np.newaxis] * costs), axis=1))


def tail_law(costs: TouchCosts, ceiling: float) -> tuple[Floats, Floats]:
    r"""Values of $\mu^2$, ascending and at most the ceiling, and their weights, which sum to 1.

    Args:
        costs: finite ones, of a run with at least one full pass.
        ceiling: $\mu^2$ that no path exceeds; may be inf.
    """
    mean, spread, most, largest = _moments(costs)
    if largest == 0.0:
        return np.zeros(1), np.ones(1)
    if not np.isfinite(largest):
        return np.array([np.inf]), np.ones(1)
    # In units of the largest cost, so that no cost is too small or too large to be squared. Beyond t = 150 in these units the products
    # of kernel entries could underflow, and the largest cost decides alone.
    tilts = np.minimum(np.geomspace(0.05, 50.0, _TILTS) / max(spread, _LEAST_SPREAD), 150.0)
    law = _Generating.start(tilts, costs.weights)
    for matrix, times in _grouped(costs):
        law = law.moved(matrix / largest, costs.weights, times)
    if costs.partial_size == 0:
        generated = law.ended(costs.to_the_end(costs.full - 1) / largest)
    else:
        # The pass after the last full one touches the record or not.
        untouched = law.ended(costs.between(costs.full - 1, np.array([costs.partial_size]))[:, 0] / largest)
        touched = law.moved(costs.between(costs.full - 1, costs.first) / largest, costs.partial)
        generated = np.logaddexp(untouched + np.log1p(-costs.partial.sum()), touched.ended(costs.to_the_end(costs.full) / largest))
    near = mean + spread * np.linspace(0.0, _REACH, _VALUES)
    far: Floats = np.geomspace(float(near[-1]), max(most, float(near[-1])), _VALUES // 4)
    values = np.concatenate((near, far[1:]))
    exponents = np.min(generated[:, np.newaxis] * (1.0 + _ROUNDING) + _ROUNDING - tilts[:, np.newaxis] * values, axis=0)
    above = np.minimum(np.exp(np.minimum(exponents, 0.0)), 1.0)
    # Mass between two values sits at the upper one; nothing exceeds the last, the sum of all largest costs.
    above = np.append(1.0, np.minimum.accumulate(above[:-1]))
    weights = above - np.append(above[1:], 0.0)
    with np.errstate(over="ignore"):
        return np.minimum(values * largest * (1.0 + 1e-12), ceiling), weights


def _grouped(costs: TouchCosts) -> Iterator[tuple[Floats, int]]:
    """The costs between full passes, and how many times in a row each matrix occurs."""
    current: Floats | None = None
    times = 0
    for matrix in costs.matrices():
        if current is not None and matrix is not current:
            yield current, times
            times = 0
        current, times = matrix, times + 1
    if current is not None:
        yield current, times


def _moments(costs: TouchCosts) -> tuple[float, float, float, float]:
    """Of the sum its mean, its standard deviation as if touches were independent (it only places the grid) and its largest value, in units
    of the largest single cost; and that cost."""
    weights, last = costs.weights, costs.full - 1
    tails = (
        [costs.to_the_end(last)] if costs.partial_size == 0 else [costs.between(last, costs.first).max(axis=1), costs.to_the_end(last + 1)]
    )
    largest = max([float(matrix.max()) for matrix, _ in _grouped(costs)] + [float(tail.max()) for tail in tails])
    if largest == 0.0 or not np.isfinite(largest):
        return 0.0, 0.0, 0.0, largest
    mean = variance = most = 0.0
    for matrix, times in _grouped(costs):
        shares = matrix / largest
        first = float(weights @ shares @ weights)
        mean += times * first
        variance += times * max(float(weights @ np.square(shares) @ weights) - first**2, 0.0)
        most += times * float(shares.max())
    for tail in tails:
        shares = tail / largest
        mean += float(weights @ shares)
        variance += float(weights @ np.square(shares))
        most += float(shares.max())
    return mean, float(np.sqrt(variance)), most, largest
