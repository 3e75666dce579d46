r"""The trade-off curve that a privacy profile proves: the fewest errors that any membership attack makes, and the Gaussian mechanism below
it.

Guarantees answer `tradeoff` with it, certificates and reports show attack rates by it, filters find Gaussian covers. $\alpha$ is an
attack's false positive rate.

A mechanism that is $(\epsilon, \delta(\epsilon))$-DP lets no test have a smaller type II error at the type I error $\alpha$ than

$$f(\alpha) = \max_\epsilon\max\{0,\ 1 - \delta(\epsilon) - e^\epsilon\alpha,\ e^{-\epsilon}(1 - \delta(\epsilon) - \alpha)\}.$$

Any number of these lines is below $f$, so that few of them make the curve too pessimistic, never too optimistic.

Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Propositions 2.5 and 2.12; docs/theory.md, Lemma 12a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from lethe.calculus.conversions import profile_epsilon
from lethe.calculus.domains import FloatArray
from lethe.calculus.normal import log_gaussian_delta
from lethe.calculus.rounding import as_bound, count_above, exp_above, round_up

FLOOR = 1e-10
"""A chance below which nobody looks: where the lines end, and the slack of the Gaussian below them."""
_LARGEST = 600.0  # e to it is a float, and so are its products with probabilities
_STEP, _FEWEST, _MOST_POINTS = 0.15, 128, 400
_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 8.0 * _EPS  # of three additions and products of numbers of at most 1


class _Bounds(Protocol):
    """A guarantee."""

    def epsilon(self, delta: float) -> float: ...

    def delta(self, epsilon: float) -> float: ...

    def deltas(self, epsilons: FloatArray) -> FloatArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class TradeOff:
    r"""Lines below a trade-off curve: $\epsilon_i$ from 0 up, and the $\delta_i$ proved there, convex in $e^\epsilon$; shape (n,)."""

    epsilons: FloatArray
    deltas: FloatArray

    @classmethod
    def of(cls, guarantee: _Bounds, floor: float = FLOOR) -> TradeOff:
        r"""Some hundred lines of a guarantee, from $\epsilon = 0$ to where $\delta$ is at most `floor`, or falls by no more than that."""
        proved = last = guarantee.epsilon(floor)
        if math.isinf(last):
            never = guarantee.delta(math.inf)
            last = profile_epsilon(lambda epsilon: max(guarantee.delta(epsilon) - never, 0.0), floor)
        last = min(last, _LARGEST)
        # Closer together near 0, where mixtures may lose most of their delta.
        levels = last * np.linspace(0.0, 1.0, max(int(count_above(last / _STEP, _MOST_POINTS)), _FEWEST) + 1) ** 2
        deltas = np.minimum(np.minimum.accumulate(guarantee.deltas(levels)), 1.0)
        deltas[-1] = min(float(deltas[-1]), floor if last == proved else 1.0)  # a kind may know more of one than of the other
        # Both directions are bounded, so that the chord from -epsilon to epsilon is above delta(0).
        by_symmetry = np.tanh(0.5 * levels) + 2.0 * deltas / (1.0 + np.exp(levels))
        deltas[0] = min(float(deltas[0]), round_up(float(by_symmetry.min()), _ROUNDING))
        hull = lower_hull(np.expm1(levels), deltas)
        return cls(levels[hull], deltas[hull])

    @property
    def advantage(self) -> float:
        r"""The most by which true positives can be more frequent than false ones: total variation, $\delta(0)$."""
        return float(self.deltas[0])

    def type_two(self, type_one: ArrayLike) -> FloatArray:
        """The least type II error of a test with this type I error in [0, 1], of any shape; rounded down."""
        errors, orders, power = np.asarray(type_one, dtype=np.float64)[..., None], np.exp(self.epsilons), 1.0 - self.deltas
        lines = np.maximum(power - orders * errors, (power - errors) / orders)
        return np.maximum(lines.max(axis=-1) - _ROUNDING, 0.0)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The largest true positive rate of a test with this false positive rate in [0, 1]; rounded up."""
        return min(round_up(1.0 - float(self.type_two(false_positive_rate))), 1.0)

    def covering_mu(self, slack: float) -> float:
        r"""The smallest $\mu$ whose cover $s + (1 - s)\,\delta_\mu$ is above the lines' profile wherever that is above s; rounded up.

        The cover's trade-off, $(1-s)\,G_\mu(\alpha/(1-s))$, is convex, so below the polygon if below its vertices: $\alpha = (\delta_i -
        \delta_{i+1})/(e^{\epsilon_{i+1}} - e^{\epsilon_i})$, $\beta = 1 - \delta_i - e^{\epsilon_i}\alpha$. Infinite where no line comes
        down to s, and where the attack errs too rarely for floating point, $\mu > 14$.
        """
        below = np.flatnonzero(self.deltas <= slack)
        if below.size == 0 or below[0] == 0:
            return 0.0 if below.size else math.inf
        levels, deltas = self.epsilons[: below[0] + 1], self.deltas[: below[0] + 1]
        orders = np.exp(levels[:-1])
        rises = orders * np.expm1(np.diff(levels))
        alphas, errors = -np.diff(deltas) / rises, _ROUNDING * deltas[:-1] / rises
        betas = 1.0 - deltas[:-1] - orders * (alphas + errors) * (1.0 + _ROUNDING) - _ROUNDING
        with np.errstate(invalid="ignore"):
            corners = np.clip(np.array([alphas * (1.0 - _ROUNDING) - errors, betas]) / (1.0 - slack), 0.0, 1.0)
            normal = ndtri(corners)
            mus = 64.0 * _EPS * np.abs(normal).sum(axis=0) - normal.sum(axis=0)
        mus[(corners >= 1.0).any(axis=0)] = 0.0  # there the cover shows all
        return as_bound(round_up(max(float(mus.max()), 0.0), 1e-14))

    def regret(self, mu: float, slack: float) -> float:
        r"""How far the trade-off of that cover lies below these lines at most, along the diagonal; rounded up.

        $\max_\epsilon\,(s + (1 - s)\,\delta_\mu(\epsilon) - \delta(\epsilon))/(1 + e^\epsilon)$: so much less often an attacker errs at the
        odds of the two cases where that is most; moved right and up by it, the cover's curve is nowhere below. Between two lines the
        numerator is convex, so that the largest is at one of them. Reference: Kaissis et al. 2024, arXiv:2406.08918.
        """
        covers = slack + (1.0 - slack) * exp_above(log_gaussian_delta(mu, self.epsilons))
        gaps = (np.minimum(covers, 1.0) - self.deltas + _ROUNDING) / (1.0 + np.exp(self.epsilons))
        return max(round_up(float(gaps.max()), _ROUNDING), 0.0)


def lower_hull(across: FloatArray, values: FloatArray) -> list[int]:
    """Indices of the points on the lower convex hull. To leave out a point is always sound, so its rounding does not matter."""
    xs, ys = across.tolist(), values.tolist()
    hull: list[int] = []
    for new in range(len(xs)):
        while len(hull) > 1:
            first, middle = hull[-2], hull[-1]
            if (xs[middle] - xs[first]) * (ys[new] - ys[first]) > (ys[middle] - ys[first]) * (xs[new] - xs[first]):
                break
            hull.pop()
        hull.append(new)
    return hull
