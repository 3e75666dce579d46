"""The page of a ledger: what is left, by whom, in plain words; and as people see it, in a browser."""

import re
from pathlib import Path
from typing import Any

import pytest
from browser import SCHEMES, chromium

import lethe
from lethe.report.sections.budgets import accounts_document

pytest.importorskip("sqlalchemy")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from lethe.ledger import Budget, Ledger
from lethe.report.formats import html

_LONG = "patients_of_the_university_hospital_and_of_three_others_in_2024"


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    ledger = Ledger.open(str(tmp_path_factory.mktemp("ledger") / "ledger.sqlite"), make=True)
    ledger.create(_LONG, budget=Budget(mu=1.0), neighbours="replace_one")
    for mu, by, why in ((0.6, "C. Doe", "length of stay"), (0.3, "A. Bell", "<b>readmission</b>"), (0.2, "A. Bell", "by accident")):
        reservation = ledger.reserve(_LONG, lethe.guarantees.GDP(mu), by=by, why=why)
    ledger.void(reservation, reason="never begun")
    ledger.create("visits", budget=Budget(epsilon=3.0, delta=1e-6), neighbours="replace_one")
    ledger.reserve("visits", lethe.guarantees.GDP(0.1), by="C. Doe")
    ledger.create("unused", budget=Budget(rho=0.1), neighbours="replace_one")
    return [ledger.show(name).to_dict() for name in ledger.data_sets()]


def test_what_is_left_is_said_first_and_never_too_much(accounts: list[dict[str, Any]]) -> None:
    """mu^2 adds up: 0.36 and 0.09 of 1 are spent, and what was voided is not."""
    page = accounts_document(accounts)
    first, picture, facts, over_time, by_whom = page.section("set-0").blocks
    assert first == "55.0 % of the privacy budget is left."
    almost = {**accounts[0], "share": 0.45001}
    assert accounts_document([almost]).sections[0].blocks[0] == "54.9 % of the privacy budget is left."
    assert picture.caption == "Spent, from the left: C. Doe 36.0 %, A. Bell 9.0 %; 55.0 % is left."  # type: ignore[union-attr]
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="24" fill="#04', picture.plot)]  # type: ignore[union-attr]
    assert widths == pytest.approx([0.36 * 460, 0.09 * 460], abs=0.01)  # two decimals are written
    line = over_time.plot.series[0]  # type: ignore[union-attr]
    assert line.up == pytest.approx([100, 64, 55, 51, 55], rel=1e-9)
    assert [row[:3] for row in by_whom.rows] == [("C. Doe", "36.0 %", "1"), ("A. Bell", "9.0 %", "2")]  # type: ignore[union-attr]
    assert dict(facts.rows)["Protected"] == "one record replaced by another"  # type: ignore[union-attr]


def test_its_words_are_plain(accounts: list[dict[str, Any]]) -> None:
    sentences = dict(accounts_document(accounts).section("set-1").blocks[2].rows)  # type: ignore[union-attr]
    assert re.fullmatch(r"epsilon [\d.]+ at delta = 1e-06, in 1 reservation", sentences["Counted so far"])
    assert re.fullmatch(r"epsilon up to [\d.]+ at delta = 1e-06 in one release, or less in several", sentences["What still fits"])
    assert sentences["Budget"] == "epsilon 3 at delta = 1e-06 for everything released"
    (table, *_) = accounts_document(accounts).section("set-0-reservations").blocks
    last = table.rows[-1]  # type: ignore[union-attr]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d", last[0])
    assert last[1:] == ("0" if "epsilon" in accounts[0] else "", "A. Bell", "by accident", "given back, unused: 0.2-GDP; never begun")
    assert "<b>" not in html(accounts_document(accounts))


def test_it_is_readable_on_a_telephone_and_asks_nobody(accounts: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "ledger.html"
    file.write_text(html(accounts_document(accounts)))
    with chromium() as page:
        page.requests()
        page.open(file)
        page.shown_everywhere(tmp_path, "ledger")
        page.unfold()
        for scheme in SCHEMES:
            page.look(390, scheme)
            assert page.violations() == []
            assert page.overflow() <= 0
        rows = "const text = document.createRange(); text.selectNodeContents(cell); return text.getClientRects().length"
        for width in (1280, 390):  # each time in one line
            page.look(width)
            lines = f"return [...document.querySelectorAll('tbody th.number')].map(cell => {{ {rows} }})"
            assert page.driver.execute_script(lines) == [1] * 4
        assert page.complaints() == []
        assert page.requests() == [file.as_uri()]
