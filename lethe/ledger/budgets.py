"""Budget: how much privacy a data set may lose in all; and DataSet, the terms on which it was entered in the ledger.

Users give a `Budget` to `Ledger.create`; a privacy filter is the rule that stops adaptively chosen releases before their sum exceeds the
budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

from lethe.calculus.conversions import gdp_epsilon, gdp_mu, zcdp_epsilon
from lethe.calculus.crossing import smallest
from lethe.calculus.domains import outside, require_delta, require_nonnegative, require_positive
from lethe.calculus.guarantees import GDP, ZCDP, Guarantee, WithSlack
from lethe.calculus.rounding import root_above, round_down, round_up
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.errors import InputError
from lethe.ledger.chain import Entry
from lethe.ledger.prices import COST_BITS, SLACK_BITS, Filter, Price, units_below
from lethe.run.participation import NOUNS, Neighbours, Unit

# A budget of rho = 1 is spent by ten releases of 0.1 although 0.1 is no binary number; the guarantee pays for this.
_TOLERANCE = Fraction(1, 10**12)
# Of a pair: what the guarantee is computed by rounds delta down once more than what the limit is computed by.
_MARGIN = Fraction(1, 10**11)
_SHARE = 0.01
_LARGEST = 1e12
_CHANGES = {"replace_one": "replaced by another", "zero_out": "left out, its place kept empty", "add_or_remove": "added or removed"}


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

    Examples:
        >>> from lethe.ledger import Budget
        >>> budget = Budget(epsilon=1.0, delta=1e-6)
        >>> budget.kind
        'gdp'
    """

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mu: float | None = None
    filter: Filter | None = None
    slack: float | None = None

    def __post_init__(self) -> None:
        budgets = [name for name in ("epsilon", "rho", "mu") if getattr(self, name) is not None]
        if len(budgets) != 1 or (self.delta is None) != (self.epsilon is None):
            raise InputError(
                f"budget: got {', '.join(budgets) or 'nothing'}{'' if self.delta is None else ' and delta'}; it needs one budget.",
                source="epsilon and delta, rho, mu",
                remedy="give epsilon=1, delta=1e-6; or rho=0.1; or mu=0.5.",
            )
        (name,) = budgets
        number = require_positive(name, getattr(self, name))
        if number > _LARGEST:
            raise outside(name, number, f"a number at most {_LARGEST:g}")
        filters = {"rho": ("zcdp",), "mu": ("gdp",)}.get(name, get_args(Filter))
        if self.filter not in (None, *filters):
            raise outside("filter", self.filter, " or ".join(filters) + f", as {name} needs")
        delta, slack_limit = None, 1.0
        if self.delta is not None:
            delta = slack_limit = require_delta(self.delta)
            if delta == 0.0:
                raise outside("delta", delta, "a number in (0, 1)")
        usual = 0.0 if delta is None else delta * _SHARE
        slack = require_nonnegative("slack", usual if self.slack is None else self.slack, allow_infinity=False)
        if slack >= slack_limit:
            raise outside("slack", slack, "a number below 1" if delta is None else f"a number below delta = {delta:g}")
        for field, value in ((name, number), ("delta", delta), ("filter", self.filter or filters[0]), ("slack", slack)):
            object.__setattr__(self, field, value)

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
        if self.epsilon is None or self.delta is None:
            whole = Fraction(self.mu) ** 2 if self.mu is not None else Fraction(self.rho or 0.0)
            return Price(units_below(whole * (1 + _TOLERANCE), COST_BITS), slack)
        remaining = round_down(self.delta - _slack_above(slack)) if slack else self.delta
        if remaining <= 0.0:
            raise outside("slack", self.slack, f"a number below delta = {self.delta:g}")
        whole = Fraction(gdp_mu(self.epsilon, remaining)) ** 2 if self.kind == "gdp" else _largest_rho(self.epsilon, remaining)
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

    def largest_mu(self, remaining: Price) -> float:
        r"""The largest $\mu$ of a Gaussian release that what is left still pays, rounded down."""
        cost = Fraction(max(remaining.cost, 0), 2**COST_BITS)
        return max(round_down(math.sqrt(round_down(float(cost if self.kind == "gdp" else 2 * cost), 1e-15)), 1e-15), 0.0) if cost else 0.0

    def largest_epsilon(self, remaining: Price, delta: float) -> float:
        r"""The largest $\epsilon$ at `delta` of a Gaussian release that still fits: one that is planned for it does, and its rounding."""
        return max(round_down(gdp_epsilon(self.largest_mu(remaining), delta), 1e-9), 0.0)

    def describe(self) -> str:
        """Such as `epsilon 1 at delta = 1e-06`."""
        if self.epsilon is not None:
            return f"epsilon {shown(self.epsilon)} at delta = {self.delta:g}"
        return f"mu {shown(self.mu)} (GDP)" if self.mu is not None else f"rho {shown(self.rho or 0.0)} (zCDP)"

    def to_dict(self) -> dict[str, Any]:
        """The budget as plain data."""
        names = ("epsilon", "delta", "rho", "mu", "filter", "slack")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _slack_above(units: int) -> float:
    return round_up(float(Fraction(units, 2**SLACK_BITS)))


def _largest_rho(epsilon: float, delta: float) -> Fraction:
    """The largest rho, but for 1e-12 of it, whose epsilon at delta is seen to be at most this."""
    return Fraction(1.0 / smallest(lambda inverse: zcdp_epsilon(1.0 / inverse, delta), epsilon, start=1.0, tolerance=1e-12))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """The terms on which a data set was entered, which no later entry can change.

    Args:
        name: of the data set.
        neighbours, unit: what the budget is about.
        budget: what everything released from it may cost.
        limit: the budget in units, as it was when the data set was entered.
        closed: whether only named spenders may reserve.
        digest: of the entry.
    """

    name: str
    neighbours: Neighbours
    unit: Unit
    budget: Budget
    limit: Price
    closed: bool
    digest: str

    @classmethod
    def of(cls, entry: Entry) -> DataSet:
        """What an entry of kind data_set says."""
        content = entry.fields
        terms = {name: content[name] for name in ("neighbours", "unit", "closed")}
        budget, limit = Budget(**content["budget"]), Price.of(content["limit"])
        return cls(name=entry.data_set, budget=budget, limit=limit, digest=entry.digest, **terms)

    def what_fits(self, counted: Price, delta: float | None = None) -> str:
        """A line on the largest training with Gaussian noise that still fits."""
        remaining = self.limit - counted
        at = self.budget.delta if self.budget.delta is not None else delta
        mu = self.budget.largest_mu(remaining)
        if remaining.cost * 10**11 <= self.limit.cost or mu <= 0.0:  # what a budget's tolerance leaves is nobody's to spend
            return "nothing is left"
        largest = f"mu up to {shown_down(mu)}"
        if at is not None:
            largest = f"epsilon up to {shown_down(self.budget.largest_epsilon(remaining, at))} at delta = {at:g} ({largest})"
        slack = (
            f"; {shown_down(remaining.slack / 2**SLACK_BITS)} of delta is left for noise that is not Gaussian" if self.limit.slack else ""
        )
        return f"you can still train once with {largest}, or more often with less{slack}"

    def about(self) -> str:
        """What the budget is about, such as `one record replaced by another`."""
        return f"one {NOUNS[self.unit][0]} {_CHANGES[self.neighbours]}"
