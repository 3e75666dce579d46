"""Reserve, release, settle: what is counted, what is given back, and what is said of what is left."""

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from helpers import make_run

import lethe
from lethe.calculus.conversions import gdp_mu
from lethe.errors import BudgetExceededError, InputError
from lethe.ledger import Budget, Ledger
from lethe.ledger.database import Database

GDP = lethe.guarantees.GDP


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
    ledger.start(ticket)
    ledger.settle(ticket, GDP(0.1), artefact="a" * 64, by="team A")
    again = Ledger.open(file).show("patients")
    (line,) = again.lines
    assert line == ledger.status(ticket.number)
    assert (line.state, line.by, line.why, line.artefact) == ("settled", "team A", "a first model", "a" * 64)
    assert again.epsilon() == pytest.approx(GDP(0.1).epsilon(1e-6), rel=1e-12)
    assert ledger.verify().entries == 4
    assert ledger.data_sets() == ("patients",)


def test_gaussian_releases_cost_their_exact_sum_and_never_less(file) -> None:
    ledger, mus = ledger_of(file), [0.01 + 0.0007 * k for k in range(40)]
    for mu in mus:
        ledger.reserve("patients", GDP(mu), by="a")
    best = GDP(math.sqrt(math.fsum(mu * mu for mu in mus))).epsilon(1e-6)
    assert best * (1 - 1e-12) <= ledger.show("patients").epsilon() <= best * (1 + 1e-9) < best + 1e-3


def test_what_does_not_fit_is_refused_with_the_largest_that_does(file) -> None:
    ledger = ledger_of(file)
    ledger.reserve("patients", GDP(0.15), by="a")
    with pytest.raises(BudgetExceededError, match=r"that still fits has epsilon = 0\.\d+ at delta = 1e-06") as caught:
        ledger.reserve("patients", GDP(0.3), by="a")
    told = float(str(caught.value).split("epsilon = ")[1].split()[0])
    with pytest.raises(BudgetExceededError):
        ledger.reserve("patients", GDP(gdp_mu(told * 1.001, 1e-6)), by="a")
    ledger.reserve("patients", GDP(gdp_mu(told, 1e-6)), by="a")
    # A release at delta has the whole of it, and the sum has not what is set aside for covers.
    assert 0.999 < ledger.show("patients").epsilon() <= 1.0
    assert len(ledger.show("patients").lines) == 2


@pytest.mark.parametrize(("budget", "each"), [(Budget(rho=1.0), lethe.guarantees.ZCDP(0.1)), (Budget(mu=1.0), GDP(0.1))])
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
    with pytest.raises(BudgetExceededError, match="covers"):
        ledger.reserve("patients", certificate, by="a", slack=9.5e-9)


def test_a_certificate_of_correlated_noise_is_reserved_at_its_own_price(file) -> None:
    ledger, costs = ledger_of(file, budget=Budget(epsilon=9, delta=1e-6)), []
    for noise in ({"noise": {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5]}}, {}):
        run = make_run(noise_multiplier=50.0, release="all", clip_norm=1.0, **noise)
        costs.append(ledger.reserve("patients", lethe.certify(run, delta=1e-5), by="team A").price.cost)
    assert costs[0] > costs[1]


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
