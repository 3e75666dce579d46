"""Budgets: what a data set may lose in all, as a privacy filter keeps it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

from lethe.calculus.conversions import gdp_epsilon, gdp_mu, zcdp_epsilon
from lethe.calculus.domains import outside, require_delta, require_nonnegative, require_positive
from lethe.calculus.guarantees import GDP, ZCDP, Guarantee, WithSlack
from lethe.calculus.rounding import root_above, round_down, round_up
from lethe.calculus.upward_formatting import shown
from lethe.errors import InputError
from lethe.ledger.prices import COST_BITS, SLACK_BITS, Filter, Price, units_above, units_below

# A budget of rho = 1 is spent by ten releases of 0.1 although 0.1 is no binary number; the guarantee pays for this.
_TOLERANCE = Fraction(1, 10**12)
# Of a pair: what the guarantee is computed by rounds delta down once more than what the limit is computed by.
_MARGIN = Fraction(1, 10**11)
_SHARE = 0.01
_LARGEST = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    r"""What everything released from a data set may cost together: $(\epsilon, \delta)$, $\rho$ or $\mu$.

    Formal guarantee: let each release have its price's guarantee given all that was released before it, and let its price be paid here
    before. Then all releases together satisfy `guarantee`, though what was released next, its price, and when to stop, were chosen in
    view of what came before. The filter and its two limits are fixed by this object, before the first release.

    Args:
        epsilon, delta: the budget as a pair, epsilon > 0, delta in (0, 1); or
        rho: as zCDP, > 0; or
        mu: as Gaussian DP, > 0.
        filter: of a pair, what adds up: "gdp" (mu^2; exact for Gaussian noise), or "zcdp" (rho); that of rho and mu is their own.
        slack: the part of delta that releases without an exact price may use (see `price_of`); None: a hundredth of delta for a pair,
            nothing for rho and mu. Of rho and mu it is added to every delta.
    Raises:
        InputError: an argument is outside its range, or there are several budgets or none.
    Reference: Smith & Thakurta 2022, arXiv:2210.17520 (gdp); Feldman & Zrnic 2021, arXiv:2008.11193, and Whitehouse et al. 2023,
        arXiv:2203.05481 (zcdp).
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    filter: Filter | None = None
    slack: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        if len(given) != 1 or (self.delta is None) != (self.epsilon is None):
            raise InputError(
                f"budget: got {', '.join(given) or 'nothing'}{'' if self.delta is None else ' and delta'}; it needs one budget.",
                source="epsilon and delta, rho, mu",
                remedy="give epsilon=1, delta=1e-6; or rho=0.1; or mu=0.5.",
            )
        (name,) = given
        number = require_positive(name, getattr(self, name))
        if number > _LARGEST:
            raise outside(name, number, f"a number at most {_LARGEST:g}")
        object.__setattr__(self, name, number)
        own: Filter | None = {"rho": "zcdp", "mu": "gdp"}.get(name)  # pyright: ignore[reportAssignmentType]
        if self.filter not in (None, *((own,) if own else get_args(Filter))):
            raise outside("filter", self.filter, f"{own}, that of {name}" if own else "gdp or zcdp")
        object.__setattr__(self, "filter", own or self.filter or "gdp")
        self._check_slack()

    def _check_slack(self) -> None:
        if self.delta is not None:
            delta = require_delta(self.delta)
            if delta == 0.0:
                raise outside("delta", delta, "a number in (0, 1)")
            object.__setattr__(self, "delta", delta)
        usual = 0.0 if self.delta is None else self.delta * _SHARE
        slack = require_nonnegative("slack", usual if self.slack is None else self.slack, allow_infinity=False)
        most = 1.0 if self.delta is None else self.delta
        if slack >= most:
            raise outside("slack", slack, f"a number below {'1' if self.delta is None else f'delta = {self.delta:g}'}")
        object.__setattr__(self, "slack", slack)

    @property
    def kind(self) -> Filter:
        """The filter."""
        assert self.filter is not None
        return self.filter

    @property
    def limit(self) -> Price:
        """The most that may be paid."""
        assert self.slack is not None
        # Never more than delta has: what is rounded down there must be above what is paid here.
        slack = units_below(Fraction(self.slack) * (1 + _TOLERANCE), SLACK_BITS)
        if self.mu is not None:
            return Price(units_below(Fraction(self.mu) ** 2 * (1 + _TOLERANCE), COST_BITS), slack)
        if self.rho is not None:
            return Price(units_below(Fraction(self.rho) * (1 + _TOLERANCE), COST_BITS), slack)
        assert self.epsilon is not None
        assert self.delta is not None
        left = round_down(self.delta - _slack_above(slack)) if slack else self.delta
        if left <= 0.0:
            raise outside("slack", self.slack, f"a number below delta = {self.delta:g}")
        whole = Fraction(gdp_mu(self.epsilon, left)) ** 2 if self.kind == "gdp" else _largest_rho(self.epsilon, left)
        return Price(units_below(whole * (1 - _MARGIN), COST_BITS), slack)

    @property
    def guarantee(self) -> Guarantee:
        """Of everything that was ever released within this budget."""
        return self.guarantee_of(self.limit)

    def guarantee_of(self, price: Price) -> Guarantee:
        """The guarantee of releases with this price together, if their guarantees were fixed before the first one."""
        cost = round_up(float(Fraction(price.cost, 2**COST_BITS)))
        paid: Guarantee = GDP(float(root_above(cost, 4e-16))) if self.kind == "gdp" else ZCDP(cost)
        return paid if price.slack == 0 else WithSlack(paid, _slack_above(price.slack))

    def largest_mu(self, left: Price) -> float:
        r"""The largest $\mu$ of a Gaussian release that what is left still pays, rounded down."""
        cost = Fraction(max(left.cost, 0), 2**COST_BITS)
        return max(round_down(math.sqrt(round_down(float(cost if self.kind == "gdp" else 2 * cost), 1e-15)), 1e-15), 0.0) if cost else 0.0

    def largest_epsilon(self, left: Price, delta: float) -> float:
        r"""The largest $\epsilon$ at `delta` of a Gaussian release that still fits: one that is planned for it does, and its rounding."""
        return max(round_down(gdp_epsilon(self.largest_mu(left), delta), 1e-9), 0.0)

    def describe(self) -> str:
        """Such as `(1, 1e-06)-DP, kept by the filter gdp`."""
        if self.epsilon is not None:
            stated = f"({shown(self.epsilon)}, {self.delta:g})-DP"
        else:
            stated = f"{shown(self.mu)}-GDP" if self.mu is not None else f"{shown(self.rho or 0.0)}-zCDP"
        return f"{stated}, kept by the filter {self.kind}" + (f", of which {self.slack:g} of delta for covers" if self.slack else "")

    def to_dict(self) -> dict[str, Any]:
        """The budget as plain data."""
        names = ("epsilon", "delta", "rho", "mu", "filter", "slack")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _slack_above(units: int) -> float:
    return round_up(float(Fraction(units, 2**SLACK_BITS)))


def _largest_rho(epsilon: float, delta: float) -> Fraction:
    """The largest rho, but for 1e-12 of it, whose epsilon at delta is seen to be at most this."""
    low, high = 0.0, 1e-300
    while zcdp_epsilon(high, delta) <= epsilon:
        low, high = high, high * 1e3
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if zcdp_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return Fraction(low)


def slack_price(slack: float) -> int:
    """A share of delta in units, rounded up."""
    return units_above(slack, SLACK_BITS)
