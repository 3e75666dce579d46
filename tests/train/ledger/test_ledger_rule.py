"""What each kind of guarantee costs in each filter, sums against other accountants, and what is counted, given back and said to be left."""

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.calculus.any_guarantee import Composition
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.filters import pure_mu
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, NotPrivate, RDPCurve, Tightest, WithSlack
from lethe.certificates.statement import Statement
from lethe.errors import BudgetExceededError, InputError
from lethe.ledger import Budget, Ledger, Spending
from lethe.ledger.database import Database
from lethe.ledger.prices import COST_BITS, SLACK_BITS, Price, price_of
from lethe.mechanisms.quantiles.quantile import private_quantile


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


def ledger_of(place: str, **terms) -> Ledger:
    ledger = Ledger.open(place, make=True)
    ledger.create("patients", **{"neighbours": "replace_one", "budget": Budget(epsilon=1.0, delta=1e-6), "by": "keeper"} | terms)
    return ledger


@pytest.fixture
def file(tmp_path) -> str:
    return str(tmp_path / "ledger.sqlite")


def test_a_release_is_reserved_and_settled(file) -> None:
    ledger = ledger_of(file)
    ticket = ledger.reserve("patients", GDP(0.1), by="team A", why="a first model")
    assert ledger.show("patients").lines == (ticket,)
    assert "broke off" not in ledger.show("patients").note
    ledger.start(ticket)
    assert "broke off: it may have released something, and stays counted" in ledger.show("patients").explain()
    ledger.settle(ticket, GDP(0.1), artefact="a" * 64, by="team A")
    again = Ledger.open(file).show("patients")
    (line,) = again.lines
    assert line == ledger.status(ticket.number)
    assert (line.state, line.by, line.why, line.artefact) == ("settled", "team A", "a first model", "a" * 64)
    assert again.epsilon() == pytest.approx(GDP(0.1).epsilon(1e-6), rel=1e-12)
    assert ledger.verify().entries == 4
    assert ledger.data_sets() == ("patients",)


def test_what_does_not_fit_is_refused_with_the_largest_that_does(file) -> None:
    ledger = ledger_of(file)
    ledger.reserve("patients", GDP(0.15), by="a")
    with pytest.raises(BudgetExceededError, match=r"you can still train once with epsilon up to 0\.\d+ at delta = 1e-06") as caught:
        ledger.reserve("patients", GDP(0.3), by="a")
    told = float(str(caught.value).split("epsilon up to ")[1].split()[0])
    with pytest.raises(BudgetExceededError):
        ledger.reserve("patients", GDP(gdp_mu(told * 1.0011, 1e-6)), by="a")  # four digits, cut off
    ledger.reserve("patients", GDP(gdp_mu(told, 1e-6)), by="a")
    # A release at delta has the whole of it, and the sum has not what is set aside for covers.
    assert 0.999 < ledger.show("patients").epsilon() <= 1.0
    assert len(ledger.show("patients").lines) == 2


@pytest.mark.parametrize(("budget", "each"), [(Budget(rho=1.0), ZCDP(0.1)), (Budget(mu=1.0), GDP(0.1))])
def test_a_budget_in_tenths_is_spent_exactly(file, budget, each) -> None:
    ledger = ledger_of(file, budget=budget)
    for _ in range(10 if budget.rho else 100):
        ledger.reserve("patients", each, by="a")
    with pytest.raises(BudgetExceededError, match="nothing is left"):
        ledger.reserve("patients", each, by="a")
    account = ledger.show("patients")
    assert account.terms.budget.guarantee.epsilon(1e-6) >= account.epsilon(1e-6)


def test_the_guarantee_of_a_budget_is_what_it_says() -> None:
    for budget in (Budget(epsilon=1, delta=1e-6), Budget(epsilon=8, delta=1e-5, slack=0), Budget(epsilon=0.1, delta=1e-9, filter="zcdp")):
        assert budget.epsilon * (1 - 1e-9) <= budget.guarantee.epsilon(budget.delta) <= budget.epsilon


def test_a_certificate_is_computed_again_before_it_is_believed_and_settles_once(file) -> None:
    ledger = ledger_of(file, budget=Budget(epsilon=100, delta=1e-6))
    certificate = lethe.certify(make_run(), delta=1e-6)
    with pytest.raises(InputError, match="its guarantee gives"):
        ledger.reserve("patients", certificate.to_dict() | {"epsilon": certificate.epsilon / 2}, by="a")
    ticket = ledger.reserve("patients", certificate, by="a")
    ledger.settle(ticket, certificate, artefact="a" * 64)
    (line,) = ledger.show("patients").lines
    assert line.declared
    assert ledger.show("patients").epsilon() >= certificate.epsilon * (1 - 1e-9)
    other = ledger.reserve("patients", certificate, by="a")
    with pytest.raises(InputError, match="in the ledger already"):
        ledger.settle(other, certificate, artefact="a" * 64)
    ledger.settle(other, certificate)  # the same run, trained once more


def test_sampled_steps_are_paid_by_their_cover(file) -> None:
    run = make_run(records=6_000, batches=lethe.batches.Poisson(60), noise_multiplier=1.5, release="all", neighbours="add_or_remove")
    certificate = lethe.certify(run, delta=1e-6)
    ledger = ledger_of(file, neighbours="add_or_remove", budget=Budget(epsilon=3, delta=1e-6, slack=1e-8))
    with pytest.raises(InputError, match="slack"):
        ledger.reserve("patients", certificate, by="a")
    ledger.reserve("patients", certificate, by="a", slack=1e-9)
    assert certificate.epsilon <= ledger.show("patients").epsilon() <= 1.06 * certificate.epsilon
    with pytest.raises(BudgetExceededError, match="not Gaussian"):
        ledger.reserve("patients", certificate, by="a", slack=9.5e-9)


def test_more_than_was_reserved_is_refused_and_stays_counted(file) -> None:
    ledger = ledger_of(file)
    ticket = ledger.reserve("patients", GDP(0.1), by="a")
    with pytest.raises(BudgetExceededError, match="more than was reserved"):
        ledger.settle(ticket, GDP(0.1001))
    assert ledger.show("patients").lines[0].state == "reserved"
    ledger.settle(ticket, GDP(0.1 * (1 + 1e-12)))


def test_less_than_was_reserved_is_given_back_only_if_it_was_fixed_before(file) -> None:
    ledger = ledger_of(file)
    first, second = (ledger.reserve("patients", GDP(0.1), by="a") for _ in range(2))
    ledger.settle(first, GDP(0.05))
    assert ledger.show("patients").counted == first.price + second.price
    ledger.settle(second, GDP(0.05), fixed_before="planned with half the steps")
    assert ledger.show("patients").epsilon() == pytest.approx(GDP(math.sqrt(0.1**2 + 0.05**2)).epsilon(1e-6), rel=1e-9)
    assert ledger.verify().entries == 5


def test_more_may_be_reserved_than_a_release_costs(file) -> None:
    ledger = ledger_of(file)
    plain, more = ledger.reserve("patients", GDP(0.1)), ledger.reserve("patients", GDP(0.1), margin=1e-5)
    assert 0 <= more.price.cost - plain.price.cost * (1 + Fraction(1e-5)) < 1
    ledger.start(more)
    ledger.settle(more, GDP(0.1 * (1 + 4e-6)))
    ledger.verify()


def test_a_dp_accounting_event_has_a_price(file) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    ledger = ledger_of(file, neighbours="add_or_remove")
    ledger.reserve("patients", dp_accounting.GaussianDpEvent(noise_multiplier=10.0), by="a")
    assert ledger.show("patients").epsilon() >= GDP(0.1).epsilon(1e-6)
    ledger.verify()


def test_a_clock_that_runs_backwards_writes_nothing(file, monkeypatch) -> None:
    ledger = ledger_of(file)
    real = datetime.now(UTC)
    monkeypatch.setattr(Database, "now", lambda *_: real - timedelta(hours=1))
    with pytest.raises(InputError, match="clock"):
        ledger.reserve("patients", GDP(0.1), by="a")
    monkeypatch.setattr(Database, "now", lambda *_: real - timedelta(milliseconds=100))
    ledger.reserve("patients", GDP(0.1), by="a")
    monkeypatch.undo()
    assert len(ledger.show("patients").lines) == 1
    ledger.verify()


def test_a_release_by_hand_is_paid(file) -> None:
    ledger = ledger_of(file, neighbours="zero_out")

    def median(mu: float) -> Statement:
        bounds: dict[str, Any] = {"quantile": 0.5, "low": -1.0, "high": 1.0, "neighbours": "zero_out", "records": 40}
        return private_quantile(np.linspace(-1.0, 1.0, 40), target=GDP(mu), **bounds).statement

    paid = Spending(ledger, "patients", by="team A")
    with paid.release(GDP(0.1)) as release:
        release.settle(median(0.1))
    with pytest.raises(BudgetExceededError, match="more than was reserved"), paid.release(GDP(0.1)) as release:
        release.settle(median(0.2))
    with pytest.raises(BudgetExceededError), paid.release(GDP(20.0)):
        raise AssertionError("the block was entered")
    assert [line.state for line in ledger.show("patients").lines] == ["settled", "started"]
    ledger.verify()
