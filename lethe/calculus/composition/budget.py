"""Privacy filter: a budget spent adaptively; a step that costs more than the remaining budget is refused."""

from __future__ import annotations

import math
import sys

from lethe.calculus.domains import outside, require_nonnegative, require_positive
from lethe.calculus.guarantees import ZCDP
from lethe.calculus.rounding import round_down, round_up
from lethe.errors import BudgetExceededError

# A schedule that spends its budget exactly must reach its last step although its costs are rounded; the guarantee pays for this.
TOLERANCE = 1e-12

# Sums of two numbers below it do not overflow.
_LARGEST = 1e300


def gaussian_cost(noise_ratio: float) -> float:
    r"""$\rho = \tfrac12 (s/\tau)^2$ of one Gaussian step, rounded up.

    Args:
        noise_ratio: $\tau/s \in [0, \infty]$: the noise's standard deviation in units of the sensitivity.
    Returns:
        $\rho$; infinity without noise.
    Raises:
        InputError: `noise_ratio` is outside its range.
    Reference: Bun & Steinke 2016, arXiv:1605.02065, Proposition 1.6.
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
    may have been chosen in view of what they released.
    Proof: with $L_t$ the privacy loss and $S_t$ the sum of the costs after t steps,
    $\exp((\alpha-1)L_t - \alpha(\alpha-1)S_t)$ has conditional means that never grow, so its mean is at most 1 at every order
    $\alpha > 1$. Since the filter keeps $S_t \le \rho$, the mean of $\exp((\alpha-1)L)$ at the end is at most
    $e^{(\alpha-1)\alpha\rho}$, which is the definition of $\rho$-zCDP.
    The guarantee is about the budget. Having stopped early in view of the outcome does not turn it into one about what was spent
    (`lethe.calculus.composition.odometer` says what can be said then).

    Slots are for disjoint batches. A record sits in one slot, and a step that visits another slot has the same law with and without it,
    so each slot has the whole budget to itself. Which slot a record sits in must not depend on what was released: fixed before
    the first step, in public or by coins that are the same on both data sets.

    Args:
        rho: the budget, > 0, at most 1e300.
        slots: how many disjoint batches there are.
    Raises:
        InputError: an argument is outside its range.
    Reference: Feldman & Zrnic 2021, arXiv:2008.11193 (Rényi filter); Whitehouse et al. 2023, arXiv:2203.05481 (filters for zCDP).
    """

    __slots__ = ("_errors", "_limit", "_sums", "rho")

    def __init__(self, rho: float, slots: int = 1) -> None:
        self.rho = require_positive("rho", rho)
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise outside("slots", slots, "an integer >= 1")
        if self.rho > _LARGEST:
            raise outside("rho", rho, f"a number at most {_LARGEST:g}")
        self._limit = round_up(self.rho, TOLERANCE)
        self._sums = [0.0] * slots
        self._errors = [0.0] * slots

    def allows(self, rho: float, slot: int = 0) -> bool:
        """Whether a step of cost `rho` >= 0 (infinity is an answer of `gaussian_cost`, and never allowed) fits what the slot has left.

        Raises:
            InputError: an argument is outside its range.
        """
        cost, place = require_nonnegative("rho", rho), self._place(slot)
        return cost <= self._limit and math.fsum((self._sums[place], self._errors[place], cost)) <= self._limit

    def spend(self, rho: float, slot: int = 0) -> None:
        """Pay for a step that visits `slot`; call it before anything of the step is computed.

        Raises:
            BudgetExceededError: the step costs more than is left. Nothing is spent then.
            InputError: an argument is outside its range.
        """
        if not self.allows(rho, slot):
            raise BudgetExceededError(
                f"a step of cost rho = {float(rho):.6g}; {self.remaining(slot):.6g} of {self.rho:.6g} is left.",
                source="the privacy budget" if len(self._sums) == 1 else f"the privacy budget of slot {slot}",
                remedy="stop here, or take the step with more noise.",
            )
        cost, place = float(rho), self._place(slot)
        before = self._sums[place]
        after = before + cost
        # Knuth's exact rounding error of that addition, so that millions of steps lose nothing.
        added = after - before
        self._errors[place] += (before - (after - added)) + (cost - added)
        self._sums[place] = after

    def spent(self, slot: int | None = None) -> float:
        """The budget that a slot has spent, rounded up; None: the most of any slot."""
        if slot is None:
            return max(self.spent(place) for place in range(len(self._sums)))
        place = self._place(slot)
        return round_up(self._sums[place] + self._errors[place])

    def remaining(self, slot: int | None = None) -> float:
        """The budget that a slot has left, rounded down, never below 0; None: the least of any slot."""
        return max(round_down(self.rho - self.spent(slot)), 0.0)

    def guarantee(self) -> ZCDP:
        r"""$\rho$-zCDP, with the tolerance added and rounded up: true of every run through this filter, whenever it stopped and why."""
        return ZCDP(round_up(self._limit, 1e-15))

    def _place(self, slot: int) -> int:
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < len(self._sums):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise outside("slot", slot, f"an integer in 0..{len(self._sums) - 1}")
        return slot
