r"""The best test for one record: how rarely it can err in the other direction, for each rate of false alarms.

A mechanism that is $(\epsilon, \delta(\epsilon))$-DP has type II error $\beta \ge \max(1 - \delta - e^\epsilon\alpha,
e^{-\epsilon}(1 - \delta - \alpha), 0)$ at type I error $\alpha$. Each $\epsilon$ gives two such lines, and all of them hold, so that the
largest holds: too few of them make the curve too pessimistic, never too optimistic. `Guarantee.tradeoff` is exact at one rate, and asks a
profile many times for it; a curve of hundreds of rates goes by one list of pairs.

Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Proposition 2.5 and 2.12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.guarantees import Guarantee

_LEVELS = 36
_SMALLEST, _LARGEST = 0.02, 60.0
_NO_MORE = 1e-8  # a delta below which larger epsilons say nothing that could be seen
_ROUNDING = 1e-12  # of a few additions and products of numbers below 1

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines that bound every test's errors from below.

    Args:
        epsilons: of each, at least 0.
        deltas: proved at it.
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def type_two(self, type_one: float) -> float:
        """The least type II error, rounded down, of a test with this type I error in [0, 1]."""
        best = 0.0
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            best = max(best, 1.0 - delta - math.exp(epsilon) * type_one, math.exp(-epsilon) * (1.0 - delta - type_one))
        return max(0.0, best - _ROUNDING)

    def found(self, type_one: float) -> float:
        """The most of the true members that a test with this rate of false alarms finds, rounded up."""
        return min(1.0, 1.0 - self.type_two(type_one))

    @property
    def right(self) -> float:
        """How often the best guess between two data sets that are equally likely is right, at most: (1 + delta(0)) / 2."""
        return min(1.0, 0.5 + 0.5 * self.deltas[0] + _ROUNDING)


def lines_of(guarantee: Guarantee, epsilon: float) -> Lines:
    """The lines of a guarantee.

    Args:
        guarantee: what is proved.
        epsilon: the one that is certified, which is among them where it is finite.
    """
    if epsilon == math.inf and guarantee.delta(_LARGEST) == 1.0:
        return Lines((0.0,), (1.0,))
    found = {level: guarantee.delta(level) for level in ({0.0} if epsilon == math.inf else {0.0, epsilon})}
    for level in np.geomspace(_SMALLEST, _LARGEST, _LEVELS).tolist():
        found[level] = guarantee.delta(level)
        if found[level] <= _NO_MORE:
            break
    ordered = tuple(sorted(found))
    return Lines(ordered, tuple(found[level] for level in ordered))


def curve(lines: Lines, points: int = 201) -> tuple[Array, Array]:
    """Type I and type II errors, finely spaced near 0 where the curve is steep."""
    inner = np.linspace(0.0, 1.0, points) ** 2
    return inner, np.array([lines.type_two(float(level)) for level in inner])
