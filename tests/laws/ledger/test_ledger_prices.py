"""Prices: what each kind of guarantee costs in each filter; sums against accountants that share nothing with them."""

import math

import mpmath
import numpy as np
import pytest

import lethe
from lethe.calculus.any_guarantee import Composition
from lethe.calculus.filters import pure_mu
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, NotPrivate, RDPCurve, Tightest, WithSlack
from lethe.errors import InputError
from lethe.ledger import Budget
from lethe.ledger.prices import COST_BITS, SLACK_BITS, Price, price_of


def cost(price: Price) -> float:
    return price.cost / 2**COST_BITS


def slack(price: Price) -> float:
    return price.slack / 2**SLACK_BITS


EXACT: dict[str, tuple[Guarantee, float, float, float]] = {
    # of the filter gdp, of the filter zcdp, and of the slack
    "gdp": (GDP(0.3), 0.09, 0.045, 0.0),
    "nothing": (GDP(0.0), 0.0, 0.0, 0.0),
    "pure": (ApproxDP(0.2, 0.0), pure_mu(0.2) ** 2, 0.02, 0.0),
    "large pure": (ApproxDP(20.0, 0.0), pure_mu(20.0) ** 2, pure_mu(20.0) ** 2 / 2, 0.0),
    "point": (ApproxDP(0.2, 1e-8), pure_mu(0.2) ** 2, 0.02, 1e-8),
    "with slack": (WithSlack(GDP(0.3), 1e-9), 0.09, 0.045, 1e-9),
    "tightest": (Tightest((GDP(0.4), GDP(0.3), NotPrivate())), 0.09, 0.045, 0.0),
    "composition": (Composition(((GDP(0.3), 2), (WithSlack(ApproxDP(0.2, 0.0), 1e-9), 3))), 0.18 + 3 * pure_mu(0.2) ** 2, 0.15, 3e-9),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_prices_are_those_of_the_theorems_rounded_up(name) -> None:
    guarantee, gaussian, concentrated, chance = EXACT[name]
    for kind, expected in (("gdp", gaussian), ("zcdp", concentrated)):
        price = price_of(guarantee, kind)
        assert expected * (1 - 1e-12) <= cost(price) <= expected * (1 + 1e-9) + 1e-20
        assert slack(price) == pytest.approx(chance, rel=1e-9)


def test_zcdp_is_exact_in_its_own_filter_and_covered_in_the_other() -> None:
    assert cost(price_of(ZCDP(0.05), "zcdp")) == pytest.approx(0.05, rel=1e-12)
    with pytest.raises(InputError, match="slack"):
        price_of(ZCDP(0.05), "gdp")
    # A Gaussian mechanism is among what zCDP promises.
    assert cost(price_of(ZCDP(0.05), "gdp", 1e-9)) >= 0.1


@pytest.mark.parametrize(
    "guarantee",
    [NotPrivate(), GDP(math.inf), ZCDP(math.inf), ApproxDP(1.0, 1.0), Composition(((GDP(math.inf), 1),)), WithSlack(GDP(1), 1.0)],
)
@pytest.mark.parametrize("kind", ["gdp", "zcdp"])
def test_what_proves_nothing_has_no_price(guarantee, kind) -> None:
    for share in (0.0, 1e-9):
        with pytest.raises(InputError):
            price_of(guarantee, kind, share)


def gaussian_delta(mu, epsilon):
    """In the digits of mpmath."""
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize("mus", [[0.1] * 25, [0.01, 0.5, 1.3], list(np.geomspace(1e-4, 2.0, 30))], ids=["equal", "three", "many"])
def test_sums_of_gaussian_releases_are_the_optimum(mus, delta) -> None:
    """In 40 digits, from the normal law alone."""
    budget, total = Budget(epsilon=50, delta=delta), Price(0, 0)
    for mu in mus:
        total += price_of(GDP(float(mu)), "gdp")
    with mpmath.workdps(40):
        mu = mpmath.sqrt(mpmath.fsum(mpmath.mpf(float(one)) ** 2 for one in mus))
        low, high = mpmath.mpf(0), mpmath.mpf(60)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (low, middle) if gaussian_delta(mu, middle) <= delta else (middle, high)
    found = budget.guarantee_of(total).epsilon(delta)
    assert high <= found <= high + mpmath.mpf(1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["gdp", "zcdp"])
def test_mixed_sums_are_not_below_the_composition_with_everything_fixed(kind) -> None:
    """A filter may not promise more than the exact composition of fixed releases has, which it allows too."""
    parts = [GDP(0.2), ApproxDP(0.3, 1e-9), GDPMixture((0.1, 1.0), (0.99, 0.01)), RDPCurve((2.0, 8.0, 32.0, 128.0), (0.02, 0.08, 0.4, 2.0))]
    total = Price(0, 0)
    for part in parts:
        total += price_of(part, kind, 1e-9)
    found = Budget(epsilon=50, delta=1e-6, filter=kind).guarantee_of(total).epsilon(1e-6)
    exact = lethe.total(parts, 1e-6, neighbours="replace_one").epsilon
    assert exact <= found <= 2.5 * exact
