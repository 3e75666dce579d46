r"""Budgets spent adaptively: a filter, which refuses what costs more than is left; an odometer, which bounds what was spent at moments
chosen on the way; and Gaussian covers, which let a filter that adds up $\mu^2$ take what is no Gaussian mechanism.

Trainers whose noise is chosen on the way (`train.core.budgeted_noise`) pay a filter before each step; `ledger` uses covers to add up
releases of several kinds against one budget.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from scipy.special import ndtri_exp

from lethe.calculus.composition import gaussian_mu
from lethe.calculus.domains import (
    outside,
    require_count,
    require_delta,
    require_nonnegative,
    require_pairs,
    require_positive,
    require_probability,
    require_vector,
)
from lethe.calculus.guarantees import ZCDP, Guarantee
from lethe.calculus.rounding import round_down, round_up
from lethe.calculus.tradeoffs import TradeOff
from lethe.errors import BudgetExceededError

# A schedule that spends its budget exactly must reach its last step although its costs are rounded; the guarantee pays for this.
TOLERANCE = 1e-12

# Sums of two numbers below it do not overflow.
_LARGEST = 1e300


def gaussian_cost(noise_ratio: float) -> float:
    r"""$\rho = \tfrac12 (s/\tau)^2$ of one Gaussian step, rounded up; infinity without noise.

    $\tau/s \in [0, \infty]$ is the noise's standard deviation in units of the sensitivity. Reference: Bun & Steinke 2016, arXiv:1605.02065,
    Proposition 1.6.
    """
    ratio = require_nonnegative("noise_ratio", noise_ratio)
    if ratio in (0.0, math.inf):
        return math.inf if ratio == 0.0 else 0.0
    inverse = 1.0 / ratio
    return max(round_up(0.5 * inverse * inverse, 5e-16), sys.float_info.min)  # three roundings; what underflows is counted as more


class BudgetFilter:
    r"""A filter that keeps what is spent at most $\rho$, whoever chooses the costs, and however they are chosen.

    Formal guarantee: let step t be $\rho_t$-zCDP given all that was released before it, with $\rho_t$ itself a function of that. If each
    step is paid for here before it is taken, then all that is released together is $\rho$-zCDP; the number and the costs of the steps
    may have been chosen in view of what they released (docs/theory.md, Theorem 10). The guarantee is about the budget: having stopped early
    in view of the outcome does not turn it into one about what was spent, of which `Odometer` speaks.

    Slots are for disjoint batches. A record sits in one slot, and a step that visits another slot has the same law with and without it, so
    each slot has the whole budget to itself. Which slot a record sits in must not depend on what was released: fixed before the first step,
    in public or by coins that are the same on both data sets. The budget $\rho$ is > 0, and at most 1e300. Reference: Feldman & Zrnic 2021,
    arXiv:2008.11193 (Rényi filter); Whitehouse et al. 2023, arXiv:2203.05481 (filters for zCDP).
    """

    __slots__ = ("_errors", "_limit", "_sums", "rho")

    def __init__(self, rho: float, slots: int = 1) -> None:
        self.rho = require_positive("rho", rho)
        if self.rho > _LARGEST:
            raise outside("rho", rho, f"a number at most {_LARGEST:g}")
        self._limit = round_up(self.rho, TOLERANCE)
        self._sums = [0.0] * require_count("slots", slots)
        self._errors = [0.0] * slots

    def allows(self, rho: float, slot: int = 0) -> bool:
        """Whether a step of cost `rho` >= 0 fits what the slot has left; infinity, an answer of `gaussian_cost`, never does."""
        cost, index = require_nonnegative("rho", rho), self._index(slot)
        return cost <= self._limit and math.fsum((self._sums[index], self._errors[index], cost)) <= self._limit

    def spend(self, rho: float, slot: int = 0) -> None:
        """Pay for a step that visits `slot`; call it before anything of the step is computed.

        Raises:
            BudgetExceededError: the step costs more than is left. Nothing is spent then.
        """
        if not self.allows(rho, slot):
            raise BudgetExceededError(
                f"a step of cost rho = {float(rho):.6g}; {self.remaining(slot):.6g} of {self.rho:.6g} is left.",
                source="the privacy budget" if len(self._sums) == 1 else f"the privacy budget of slot {slot}",
                remedy="stop here, or take the step with more noise.",
            )
        cost, index = float(rho), self._index(slot)
        before = self._sums[index]
        after = before + cost
        # Knuth's exact rounding error of that addition, so that millions of steps lose nothing.
        added = after - before
        self._errors[index] += (before - (after - added)) + (cost - added)
        self._sums[index] = after

    def spent(self, slot: int | None = None) -> float:
        """The budget that a slot has spent, rounded up; None: the most of any slot."""
        if slot is None:
            return max(self.spent(index) for index in range(len(self._sums)))
        index = self._index(slot)
        return round_up(self._sums[index] + self._errors[index])

    def remaining(self, slot: int | None = None) -> float:
        """The budget that a slot has left, rounded down, never below 0; None: the least of any slot."""
        return max(round_down(self.rho - self.spent(slot)), 0.0)

    def guarantee(self) -> ZCDP:
        r"""$\rho$-zCDP, with the tolerance added and rounded up: true of every run through this filter, whenever it stopped and why."""
        return ZCDP(round_up(self._limit, 1e-15))

    def _index(self, slot: int) -> int:
        return require_count("slot", slot, low=0, high=len(self._sums) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odometer:
    r"""A bound on the privacy loss that holds at all times at once: with $S$ the sum of the zCDP costs so far,

    $$\epsilon(S) = \min_k\; S + \sqrt{\log\frac{1}{\delta w_k}}\,\Big(\frac{S}{\sqrt{\rho_k}} + \sqrt{\rho_k}\Big),$$

    which at a level $S = \rho_k$ is $\rho_k + 2\sqrt{\rho_k\log(1/(\delta w_k))}$ and between two levels is below that of the upper one.

    Formal guarantee: let the costs, their number and the moment of looking be chosen in view of all that was released, each cost before
    its step. With probability at least $1 - \delta$ the privacy loss is at most $\epsilon(S)$ at every step, so also at the one where
    someone stops; for either of the two data sets. In particular, "go on while $\epsilon(S) \le \epsilon_0$" is
    $(\epsilon_0, \delta)$-DP for every $\epsilon_0$. $\delta$ and the grid must be fixed before the first step. Proof, and why
    `ZCDP(spent)` would be false: docs/theory.md, section 10.

    Levels $\rho_k > 0$, shape (K,), are budgets at which the bound shall be tightest; weights $w_k > 0$, shape (K,), of sum at most 1 (1e-9
    of rounding is forgiven), the share of $\delta$ each gets. Reference: Rogers et al. 2016, arXiv:1605.08294 (odometers); Whitehouse et
    al. 2023, arXiv:2203.05481 (by martingales).
    """

    levels: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        levels = require_vector("levels", self.levels, low=0.0, strict=True)
        weights = require_vector("weights", self.weights, low=0.0, strict=True)
        require_pairs("levels", levels, "weights", weights)
        total = math.fsum(weights.tolist())
        if total > 1.0 + 1e-9:
            raise outside("the sum of the weights", total, "a number at most 1")
        object.__setattr__(self, "levels", tuple(levels.tolist()))
        object.__setattr__(self, "weights", tuple(weight / max(total, 1.0) for weight in weights.tolist()))

    @classmethod
    def up_to(cls, rho: float, levels: int = 10) -> Odometer:
        r"""Equal weights on $\rho, \rho/2, \rho/4, \dots$: good at every time a filter of budget $\rho$ may be looked at."""
        budget, count = require_positive("rho", rho), require_count("levels", levels, high=1000)
        return cls(levels=tuple(budget * 0.5**k for k in range(count)), weights=(1.0 / count,) * count)

    def epsilon(self, spent: float, delta: float) -> float:
        r"""$\epsilon(S)$ at $\delta$, fixed in advance, rounded up; 0 where nothing is spent, infinity for $\delta = 0$ otherwise."""
        total, target = require_nonnegative("spent", spent), require_delta(delta)
        if total == 0.0:
            return 0.0
        if target == 0.0 or math.isinf(total):
            return math.inf
        lines: list[float] = []
        for level, weight in zip(self.levels, self.weights, strict=True):
            tail, root = math.sqrt(-math.log(target) - math.log(weight)), math.sqrt(level)
            lines.append(total + tail * (total / root + root))
        return round_up(min(lines), 2e-15)  # ten roundings of positive numbers


def pure_mu(epsilon: float) -> float:
    r"""The smallest $\mu$ with: $\epsilon$-DP implies $\mu$-GDP, $\mu = 2\,\Phi^{-1}(e^\epsilon/(1+e^\epsilon))$; rounded up.

    Proved in docs/theory.md, section 12.
    """
    level = require_nonnegative("epsilon", epsilon)
    if level == 0.0 or math.isinf(level):
        return level
    # log(1/(1 + e^epsilon)) is known to a few roundings; near one half its quantile loses digits, but not this many.
    return round_up(-2.0 * float(ndtri_exp(-level - math.log1p(math.exp(-level)))) + 1e-14, 1e-12)


def covering_mu(guarantee: Guarantee, slack: float) -> float:
    r"""A $\mu$, close to the smallest, such that the guarantee's profile is below that of a Gaussian that fails openly with chance $s$:

    $$\delta(\epsilon) \le s + (1 - s)\,\delta_\mu(\epsilon) \quad\text{for all } \epsilon \ge 0.$$

    The right side is the profile, in both directions, of a mechanism that shows its data with probability $s \in [0, 1]$, the slack, and is
    otherwise exactly $\mu$-Gaussian. See `TradeOff.covering_mu`; infinity if no $\epsilon$ is proved at $\delta = s$.
    """
    share = require_probability("slack", slack)
    if share >= 1.0:
        return 0.0
    return min(gaussian_mu(guarantee), TradeOff.of(guarantee, share).covering_mu(share))
