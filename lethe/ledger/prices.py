r"""Prices: what a guarantee costs of a data set's budget, in whole units, rounded up.

documents.py prices releases, budgets.py the budget itself.

A budget is kept by a privacy filter, which is fixed when the data set is entered: it adds up $\mu^2$ (filter `gdp`) or $\rho$ (filter
`zcdp`), and beside it the chances that a release fails openly (`slack`). Sums of whole numbers have no rounding errors, and do not depend
on the order in which releases are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from lethe.calculus.any_guarantee import Composition
from lethe.calculus.domains import outside
from lethe.calculus.filters import covering_mu, pure_mu
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, Guarantee, NotPrivate, Tightest, WithSlack
from lethe.errors import InputError

Filter = Literal["gdp", "zcdp"]
"""gdp adds up mu^2 (Smith & Thakurta 2022, Koskela et al. 2023); zcdp adds up rho (Feldman & Zrnic 2021, Whitehouse et al. 2023)."""

COST_BITS = 80
SLACK_BITS = 120
# Two machines compute one certificate's numbers alike, but for rounding.
_ROUNDING = 10**9


@dataclass(frozen=True, slots=True, order=True)
class Price:
    r"""What is paid: `cost` in units of $2^{-80}$ of $\mu^2$ or $\rho$, and `slack` in units of $2^{-120}$ of $\delta$; both >= 0."""

    cost: int
    slack: int

    def __add__(self, other: Price) -> Price:
        return Price(self.cost + other.cost, self.slack + other.slack)

    def __sub__(self, other: Price) -> Price:
        return Price(self.cost - other.cost, self.slack - other.slack)

    def within(self, other: Price) -> bool:
        """Whether neither part is above that of `other`."""
        return self.cost <= other.cost and self.slack <= other.slack

    def with_rounding(self) -> Price:
        """The price, with what another machine may round otherwise."""
        return Price(self.cost + self.cost // _ROUNDING + 1, self.slack + self.slack // _ROUNDING + 1)

    def to_dict(self) -> dict[str, str]:
        """Plain data: whole numbers as text, which no reader rounds."""
        return {"cost": str(self.cost), "slack": str(self.slack)}

    @classmethod
    def of(cls, content: dict[str, Any]) -> Price:
        """What `to_dict` wrote."""
        return cls(int(content["cost"]), int(content["slack"]))


FREE = Price(0, 0)


def units_above(value: float | Fraction, bits: int) -> int:
    """The smallest number of units that is not below a finite `value`."""
    return math.ceil(Fraction(value) * 2**bits)


def units_below(value: float | Fraction, bits: int) -> int:
    """The largest number of units that is not above a finite `value`."""
    return math.floor(Fraction(value) * 2**bits)


def price_of(guarantee: Guarantee, kind: Filter, slack: float = 0.0) -> Price:
    r"""The price in a filter of a release, whose guarantee holds given everything that was released before it.

    Exact are, for `gdp`, $\mu$-GDP ($\mu^2$) and pure $\epsilon$-DP; for `zcdp` $\rho$-zCDP ($\rho$), $\mu$-GDP ($\mu^2/2$) and pure DP
    ($\epsilon^2/2$); and what is composed of these. A point $(\epsilon, \delta)$ costs what pure $\epsilon$-DP does, and $\delta$ of the
    slack. Of all else (sampled Gaussian steps, profiles, Rényi curves) the price is that of a Gaussian that covers it, with chance
    `slack` in [0, 1) of failing openly; without slack there is none. Reference: `docs/theory.md`, section "A budget for many releases".
    """
    if kind not in get_args(Filter):
        raise outside("filter", kind, "one of " + ", ".join(get_args(Filter)))
    prices = [price for price in (_exact(guarantee, kind), _covered(guarantee, kind, slack)) if price and price.slack < 2**SLACK_BITS]
    if not prices:
        raise _no_price(guarantee, kind, slack)
    return min(prices)


def has_exact_price(guarantee: Guarantee, kind: Filter) -> bool:
    """Whether a guarantee has a price by a theorem on its kind, and none of delta is spent for it: `price_of` then needs no slack."""
    price = _exact(guarantee, kind)
    return price is not None and price.slack == 0


def _exact(guarantee: Guarantee, kind: Filter) -> Price | None:
    """Its price by a theorem on its kind; None: there is none."""
    match guarantee:
        case GDP(mu=mu) if mu < math.inf:
            return _gaussian(mu, kind)
        case ZCDP(rho=rho) if kind == "zcdp" and rho < math.inf:
            return Price(units_above(rho, COST_BITS), 0)
        case ApproxDP(epsilon_bound=epsilon, delta_bound=delta) if delta < 1.0:
            # No worse than to fail openly with chance delta and be pure epsilon-DP else: Kairouz, Oh, Viswanath 2015, arXiv:1311.0776.
            return _pure(epsilon, kind) + Price(0, units_above(delta, SLACK_BITS))
        case WithSlack(guarantee=inner, slack=chance):
            # Its coins have the same law on both data sets: it fails openly with this chance.
            price = _exact(inner, kind)
            return None if price is None else price + Price(0, units_above(chance, SLACK_BITS))
        case Tightest(parts=parts):
            prices = [price for part in parts if (price := _exact(part, kind)) is not None]
            return min(prices) if prices else None
        case Composition(parts=counted):
            total = FREE
            for part, count in counted:
                if (price := _exact(part, kind)) is None:
                    return None
                total += Price(price.cost * count, price.slack * count)
            return total
        case _:
            return None


def _pure(epsilon: float, kind: Filter) -> Price:
    r"""The price of $\epsilon$-DP."""
    gaussian = _gaussian(pure_mu(epsilon), kind)
    # Bun & Steinke 2016, arXiv:1605.02065, Proposition 1.4.
    return gaussian if kind == "gdp" else min(gaussian, Price(units_above(Fraction(epsilon) ** 2 / 2, COST_BITS), 0))


def _gaussian(mu: float, kind: Filter) -> Price:
    r"""The price of $\mu$-GDP."""
    square = Fraction(mu) ** 2
    return Price(units_above(square if kind == "gdp" else square / 2, COST_BITS), 0)


def _covered(guarantee: Guarantee, kind: Filter, slack: float) -> Price | None:
    """The price of any other guarantee: of a Gaussian mechanism that covers it but for a chance `slack`; None where none does."""
    if isinstance(guarantee, NotPrivate | GDP) or not 0.0 < slack < 1.0:
        return None
    mu = covering_mu(guarantee, slack)
    return None if math.isinf(mu) else _gaussian(mu, kind) + Price(0, units_above(slack, SLACK_BITS))


def _no_price(guarantee: Guarantee, kind: Filter, slack: float) -> InputError:
    """The error for a guarantee that the filter cannot add up."""
    if isinstance(guarantee, NotPrivate) or math.isinf(guarantee.epsilon(0.5)):
        return InputError(
            f"{guarantee.describe()}: nothing is proved of this release, and no budget pays for it.",
            source="the guarantee",
            remedy="release it with noise, and certify that.",
        )
    needed = "it needs a share of delta" if slack == 0.0 else f"it proves no epsilon at its share of delta, {slack:g}"
    exact = "GDP and pure DP" if kind == "gdp" else "zCDP, GDP and pure DP"
    return InputError(
        f"{guarantee.describe()}: {needed}, since the filter {kind} adds up exactly only {exact}.",
        source="slack",
        remedy="give slack=..., a part of what the data set's budget sets aside for it (slack of the budget).",
    )
