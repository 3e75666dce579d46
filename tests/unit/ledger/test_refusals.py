"""What a ledger refuses: the call, what its error names, and that nothing was written."""

import math

import pytest
from helpers import make_run

import lethe
from lethe.errors import InputError
from lethe.ledger import Budget, Ledger, Spending, spending

GDP = lethe.guarantees.GDP
PAIR = {"epsilon": 1, "delta": 1e-6}
OTHERS = {"neighbours": "zero_out", "budget": Budget(mu=1)}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory) -> Ledger:
    """Reservations 3 settled, 5 started, 7 voided, 9 open; `closed` admits team A alone."""
    ledger = Ledger.open(tmp_path_factory.mktemp("refusals") / "ledger.sqlite", make=True)
    ledger.create("patients", neighbours="replace_one", budget=Budget(**PAIR), by="keeper")
    settled = ledger.reserve("patients", GDP(0.05), by="a")
    ledger.settle(settled, GDP(0.05))
    ledger.start(ledger.reserve("patients", GDP(0.05), by="a"))
    ledger.void(ledger.reserve("patients", GDP(0.05), by="a"), reason="the job was never started")
    ledger.reserve("patients", GDP(0.05), by="a")
    ledger.create("closed", neighbours="zero_out", budget=Budget(mu=1), spenders=["team A"], by="keeper")
    assert {line.number: line.state for line in ledger.show("patients").lines} == {2: "settled", 4: "started", 6: "voided", 8: "reserved"}
    return ledger


REFUSED = [
    (lambda ledger: Budget(), "nothing"),
    (lambda ledger: Budget(epsilon=1), "one budget"),
    (lambda ledger: Budget(epsilon=1, delta=0.0), "delta"),
    (lambda ledger: Budget(**PAIR, rho=1), "epsilon, rho"),
    (lambda ledger: Budget(rho=-1), "rho"),
    (lambda ledger: Budget(mu=math.inf), "mu"),
    (lambda ledger: Budget(mu=math.nan), "mu"),
    (lambda ledger: Budget(rho=1, filter="gdp"), "filter"),
    (lambda ledger: Budget(**PAIR, slack=1e-6), "slack"),
    (lambda ledger: Budget(**PAIR, filter="moments"), "filter"),
    (lambda ledger: ledger.create("patients", **OTHERS), "already"),
    (lambda ledger: ledger.create("others", **OTHERS | {"neighbours": "neighbours"}), "neighbours"),
    (lambda ledger: ledger.create("others", **OTHERS, unit="house"), "unit"),
    *((lambda ledger, name=name: ledger.create(name, **OTHERS), "name") for name in ("", " ", "a\nb", "\x1b[2J", "x" * 300, 3)),
    (lambda ledger: ledger.admit("closed", "team A"), "already"),
    (lambda ledger: ledger.admit("patients", "team A"), "needs no admission"),
    (lambda ledger: ledger.reserve("patient", GDP(0.1)), "no data set of this ledger; in it are patients, closed"),
    (lambda ledger: ledger.reserve("closed", GDP(0.1), by="team B"), "may not reserve"),
    (lambda ledger: ledger.reserve("patients", GDP(0.1), margin=-0.1), "margin"),
    (lambda ledger: ledger.reserve("patients", lethe.certify(make_run(neighbours="zero_out"), delta=1e-6)), "zero_out"),
    (lambda ledger: ledger.reserve("patients", lethe.certify(make_run(unit="user"), delta=1e-6)), "user"),
    *(
        (lambda ledger, item=item: ledger.reserve("patients", item, slack=1e-9), r"nothing is proved|proves no epsilon")
        for item in (GDP(math.inf), lethe.guarantees.ApproxDP(0.1, 1.0), lethe.guarantees.ZCDP(math.inf))
    ),
    (lambda ledger: ledger.start(1), "no reservation"),
    (lambda ledger: ledger.start(99), "no reservation"),
    (lambda ledger: ledger.start("2"), "Reservation or its number"),
    (lambda ledger: ledger.start(2), "settled already"),
    (lambda ledger: ledger.settle(2, GDP(0.05)), "settled already"),
    (lambda ledger: ledger.void(2, reason="a mistake"), "settled already"),
    (lambda ledger: ledger.start(4), "started before"),
    (lambda ledger: ledger.void(4, reason="it crashed"), "may have been"),
    (lambda ledger: ledger.settle(6, GDP(0.05)), "voided already"),
    (lambda ledger: ledger.void(8, reason=" "), "reason"),
    (lambda ledger: ledger.settle(8, GDP(0.05), artefact="abc"), "artefact"),
    *((lambda ledger, wrong=wrong: Spending(wrong, "patients"), "needs an open ledger") for wrong in ("ledger.sqlite", None, 3)),
    (lambda ledger: spending("ledger.sqlite", "patients").__enter__(), "needs an open ledger"),
    (lambda ledger: Spending(ledger, "patients", reservation=8).release(GDP(0.05)).__enter__(), "pays for a training"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_is_refused_writes_nothing(call, words: str, ledger) -> None:
    before = ledger.verify()
    with pytest.raises(InputError, match=words):
        call(ledger)
    assert ledger.verify() == before
