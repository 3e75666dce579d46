"""Reserve, release, settle: what is counted, what is refused, and what is said of what is left."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from helpers import make_run

import lethe
from lethe.calculus.conversions import gdp_mu
from lethe.errors import BudgetExceededError, InputError
from lethe.ledger import Budget, Ledger
from lethe.ledger.database import Database


def ledger_of(place: str, **terms) -> Ledger:
    ledger = Ledger.open(place, make=True)
    ledger.create("patients", **{"neighbours": "replace_one", "budget": Budget(epsilon=1.0, delta=1e-6), "by": "keeper"} | terms)
    return ledger


@pytest.fixture
def file(tmp_path) -> str:
    return str(tmp_path / "ledger.sqlite")


@pytest.mark.slow
def test_a_release_is_reserved_and_settled_in_both_databases(place) -> None:
    ledger = ledger_of(place)
    ticket = ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="team A", why="a first model")
    assert ledger.show("patients").lines[0].state == "reserved"
    ledger.start(ticket)
    ledger.settle(ticket, lethe.guarantees.GDP(0.1), artefact="a" * 64, by="team A")
    again = Ledger.open(place).show("patients")
    (line,) = again.lines
    assert (line.state, line.by, line.why, line.artefact) == ("settled", "team A", "a first model", "a" * 64)
    assert again.epsilon() == pytest.approx(lethe.guarantees.GDP(0.1).epsilon(1e-6), rel=1e-12)
    assert ledger.verify().entries == 4
    assert ledger.data_sets() == ("patients",)


@pytest.mark.slow
def test_gaussian_releases_cost_their_exact_sum_and_never_less(file) -> None:
    ledger, mus = ledger_of(file), [0.01 + 0.0007 * k for k in range(40)]
    for mu in mus:
        ledger.reserve("patients", lethe.guarantees.GDP(mu), by="a")
    best = lethe.guarantees.GDP(math.sqrt(math.fsum(mu * mu for mu in mus))).epsilon(1e-6)
    assert best * (1 - 1e-12) <= ledger.show("patients").epsilon() <= best * (1 + 1e-9) < best + 1e-3


def test_what_does_not_fit_is_refused_with_the_largest_that_does(file) -> None:
    ledger = ledger_of(file)
    ledger.reserve("patients", lethe.guarantees.GDP(0.15), by="a")
    with pytest.raises(BudgetExceededError, match=r"that still fits has epsilon = 0\.\d+ at delta = 1e-06") as caught:
        ledger.reserve("patients", lethe.guarantees.GDP(0.3), by="a")
    told = float(str(caught.value).split("epsilon = ")[1].split()[0])
    with pytest.raises(BudgetExceededError):
        ledger.reserve("patients", lethe.guarantees.GDP(gdp_mu(told * 1.001, 1e-6)), by="a")
    ledger.reserve("patients", lethe.guarantees.GDP(gdp_mu(told, 1e-6)), by="a")
    account = ledger.show("patients")
    assert account.epsilon() <= 1.0
    # A release at delta has the whole of it, and the sum has not what is set aside for covers.
    assert account.epsilon() > 0.999
    assert len(account.lines) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "each"), [(Budget(rho=1.0), lethe.guarantees.ZCDP(0.1)), (Budget(mu=1.0), lethe.guarantees.GDP(0.1))])
def test_a_budget_in_tenths_is_spent_exactly(file, budget, each) -> None:
    ledger = ledger_of(file, budget=budget)
    times = 10 if budget.rho else 100
    for _ in range(times):
        ledger.reserve("patients", each, by="a")
    with pytest.raises(BudgetExceededError, match="nothing is left"):
        ledger.reserve("patients", each, by="a")
    account = ledger.show("patients")
    assert account.terms.budget.guarantee.epsilon(1e-6) >= account.epsilon(1e-6)


def test_the_guarantee_of_a_budget_is_what_it_says() -> None:
    for budget in (Budget(epsilon=1, delta=1e-6), Budget(epsilon=8, delta=1e-5, slack=0), Budget(epsilon=0.1, delta=1e-9, filter="zcdp")):
        assert budget.epsilon * (1 - 1e-9) <= budget.guarantee.epsilon(budget.delta) <= budget.epsilon


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({}, "nothing"),
        ({"epsilon": 1}, "one budget"),
        ({"epsilon": 1, "delta": 0.0}, "delta"),
        ({"epsilon": 1, "delta": 1e-6, "rho": 1}, "epsilon, rho"),
        ({"rho": -1}, "rho"),
        ({"mu": math.inf}, "mu"),
        ({"mu": math.nan}, "mu"),
        ({"rho": 1, "filter": "gdp"}, "filter"),
        ({"epsilon": 1, "delta": 1e-6, "slack": 1e-6}, "slack"),
        ({"epsilon": 1, "delta": 1e-6, "filter": "moments"}, "filter"),
    ],
)
def test_a_budget_that_is_none_is_refused(numbers, said) -> None:
    with pytest.raises(InputError, match=said):
        Budget(**numbers)


def test_other_neighbours_and_units_do_not_mix(file) -> None:
    ledger = ledger_of(file, neighbours="replace_one")
    certificate = lethe.certify(make_run(neighbours="zero_out"), delta=1e-6)
    with pytest.raises(InputError, match="zero_out"):
        ledger.reserve("patients", certificate, by="a")
    users = lethe.certify(make_run(unit="user"), delta=1e-6)
    with pytest.raises(InputError, match="user"):
        ledger.reserve("patients", users, by="a")
    assert ledger.show("patients").lines == ()


@pytest.mark.slow
def test_a_certificate_is_computed_again_before_it_is_believed(file) -> None:
    ledger = ledger_of(file, budget=Budget(epsilon=100, delta=1e-6))
    certificate = lethe.certify(make_run(), delta=1e-6)
    written = certificate.to_dict() | {"epsilon": certificate.epsilon / 2}
    with pytest.raises(InputError, match="its guarantee gives"):
        ledger.reserve("patients", written, by="a")
    ticket = ledger.reserve("patients", certificate, by="a")
    ledger.settle(ticket, certificate, artefact="a" * 64)
    (line,) = ledger.show("patients").lines
    assert line.declared
    assert ledger.show("patients").epsilon() >= certificate.epsilon * (1 - 1e-9)
    other = ledger.reserve("patients", certificate, by="a")
    with pytest.raises(InputError, match="in the ledger already"):
        ledger.settle(other, certificate, artefact="a" * 64)
    ledger.settle(other, certificate)  # the same run, trained once more


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "guarantee", [lethe.guarantees.GDP(math.inf), lethe.guarantees.ApproxDP(0.1, 1.0), lethe.guarantees.ZCDP(math.inf)]
)
def test_what_proves_nothing_has_no_price(file, guarantee) -> None:
    with pytest.raises(InputError, match=r"nothing is proved|proves no epsilon"):
        ledger_of(file).reserve("patients", guarantee, by="a", slack=1e-9)


def test_more_than_was_reserved_is_refused_and_stays_counted(file) -> None:
    ledger = ledger_of(file)
    ticket = ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    with pytest.raises(BudgetExceededError, match="more than was reserved"):
        ledger.settle(ticket, lethe.guarantees.GDP(0.1001))
    assert ledger.show("patients").lines[0].state == "reserved"
    ledger.settle(ticket, lethe.guarantees.GDP(0.1 * (1 + 1e-12)))


@pytest.mark.slow
def test_less_than_was_reserved_is_given_back_only_if_it_was_fixed_before(file) -> None:
    ledger = ledger_of(file)
    first, second = (ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a") for _ in range(2))
    ledger.settle(first, lethe.guarantees.GDP(0.05))
    assert ledger.show("patients").counted == second.counted
    ledger.settle(second, lethe.guarantees.GDP(0.05), fixed_before="planned with half the steps")
    best = lethe.guarantees.GDP(math.sqrt(0.1**2 + 0.05**2)).epsilon(1e-6)
    assert ledger.show("patients").epsilon() == pytest.approx(best, rel=1e-9)
    assert ledger.verify().entries == 5


def test_two_settlements_and_other_wrong_orders_are_refused(file) -> None:
    ledger = ledger_of(file)
    ticket, other, third = (ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a") for _ in range(3))
    ledger.settle(ticket, lethe.guarantees.GDP(0.1))
    for wrong in (
        lambda: ledger.settle(ticket, lethe.guarantees.GDP(0.1)),
        lambda: ledger.void(ticket, reason="a mistake"),
        lambda: ledger.start(ticket),
    ):
        with pytest.raises(InputError, match="settled already"):
            wrong()
    ledger.start(other)
    with pytest.raises(InputError, match="may have been"):
        ledger.void(other, reason="it crashed")
    with pytest.raises(InputError, match="started before"):
        ledger.start(other)
    with pytest.raises(InputError, match="reason"):
        ledger.void(third, reason=" ")
    ledger.void(third, reason="the job was never started")
    with pytest.raises(InputError, match="voided already"):
        ledger.settle(third, lethe.guarantees.GDP(0.1))
    for unknown in (1, 99):
        with pytest.raises(InputError, match="no reservation"):
            ledger.start(unknown)
    with pytest.raises(InputError, match="Reservation or its number"):
        ledger.start("2")
    assert [line.state for line in ledger.show("patients").lines] == ["settled", "started", "voided"]
    assert ledger.show("patients").epsilon() == pytest.approx(lethe.guarantees.GDP(math.sqrt(0.02)).epsilon(1e-6))
    ledger.verify()


def test_only_who_was_admitted_may_reserve(file) -> None:
    ledger = ledger_of(file, spenders=["team A"])
    with pytest.raises(InputError, match="may not reserve"):
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="team B")
    ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="team A")
    ledger.admit("patients", "team B", by="keeper")
    ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="team B")
    with pytest.raises(InputError, match="already"):
        ledger.admit("patients", "team B")
    ledger.verify()


def test_unknown_names_and_names_twice_are_refused(file) -> None:
    ledger = ledger_of(file)
    with pytest.raises(InputError, match="no data set of this ledger; in it are patients"):
        ledger.reserve("patient", lethe.guarantees.GDP(0.1))
    with pytest.raises(InputError, match="already"):
        ledger.create("patients", neighbours="zero_out", budget=Budget(mu=1))
    with pytest.raises(InputError, match="neighbours"):
        ledger.create("others", neighbours="neighbours", budget=Budget(mu=1))
    for name in ("", " a", "a\nb", "\x1b[2J", "x" * 300, 3):
        with pytest.raises(InputError, match="name"):
            ledger.create(name, neighbours="zero_out", budget=Budget(mu=1))


@pytest.mark.slow
def test_a_clock_that_runs_backwards_writes_nothing(file, monkeypatch) -> None:
    ledger = ledger_of(file)
    real = datetime.now(UTC)
    monkeypatch.setattr(Database, "now", lambda *_: real - timedelta(hours=1))
    with pytest.raises(InputError, match="clock"):
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    monkeypatch.setattr(Database, "now", lambda *_: real - timedelta(milliseconds=100))
    ledger.reserve("patients", lethe.guarantees.GDP(0.1), by="a")
    monkeypatch.undo()
    assert len(ledger.show("patients").lines) == 1
    ledger.verify()
