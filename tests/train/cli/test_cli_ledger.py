"""`lethe ledger`: every verb, its exit status, and what it prints and writes."""

import csv
import json

import pytest
from entry_point import status
from helpers import make_run

import lethe

pytest.importorskip("sqlalchemy")


@pytest.fixture
def place(tmp_path, capsys) -> str:
    path = str(tmp_path / "ledger.sqlite")
    assert status("ledger", "create", path, "patients", "--neighbours", "replace_one", "--epsilon", "3", "--delta", "1e-6") == 0
    capsys.readouterr()
    return path


def test_a_release_from_its_reservation_to_the_page(place, tmp_path, capsys) -> None:
    lethe.certify(make_run(), delta=1e-6).save(tmp_path / "certificate.json")
    assert status("ledger", "reserve", place, "patients", str(tmp_path / "certificate.json"), "--by", "team A", "--json") == 0
    number = json.loads(capsys.readouterr().out)["reservation"]
    assert status("ledger", "start", place, str(number)) == 0
    assert status("ledger", "settle", place, str(number), str(tmp_path / "certificate.json"), "--artefact", "a" * 64) == 0
    assert status("ledger", "reserve", place, "patients", "--rho", "0.001", "--slack", "1e-9", "--by", "=team()") == 0
    assert status("ledger", "void", place, str(number + 3), "--reason", "never begun") == 0
    capsys.readouterr()
    assert status("ledger", "show", place, "--json") == 0
    (account,) = json.loads(capsys.readouterr().out)
    assert [line["state"] for line in account["reservations"]] == ["settled", "voided"]
    assert status("ledger", "show", place, "patients") == 0
    assert "still fits" in (shown := capsys.readouterr().out)
    assert "team A" in shown
    assert status("ledger", "export", place, "-o", str(tmp_path / "page.html")) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.index("Declared") < page.index("team A")
    assert "<script" not in page
    assert status("ledger", "export", place, "-o", str(tmp_path / "table.csv")) == 0
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [row["by"] for row in rows] == ["team A", "'=team()"]


def test_the_budget_over_time_is_drawn(place, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    assert status("ledger", "reserve", place, "patients", "--mu", "0.1") == 0
    assert status("ledger", "show", place, "--plot", str(tmp_path / "budget.svg")) == 0
    assert "% of the budget" in (tmp_path / "budget.svg").read_text()
    assert status("ledger", "show", place, "--plot", str(tmp_path / "budget.png")) == 0


def test_what_does_not_fit_is_status_2_and_writes_nothing(place, capsys) -> None:
    assert status("ledger", "reserve", place, "patients", "--mu", "3") == 2
    told = capsys.readouterr().err
    assert "largest Gaussian release that still fits" in told
    assert "Do:" in told
    assert status("ledger", "show", place, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["reservations"] == []


def test_verify_says_the_head_and_finds_that_it_is_missing(place, capsys) -> None:
    assert status("ledger", "verify", place, "--json") == 0
    head = json.loads(capsys.readouterr().out)["head"]
    assert status("ledger", "verify", place, "--head", head) == 0
    assert status("ledger", "verify", place, "--head", "0" * 63 + "1") == 1
    assert "written down" in capsys.readouterr().err


def test_a_ledger_that_may_only_be_read_is_shown_verified_and_exported(place, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("lethe.ledger.database.Database.read_only", True)
    for words in (["show", place, "--json"], ["verify", place, "--json"], ["export", place, "-o", str(tmp_path / "page.html")]):
        assert status("ledger", *words) == 0
        told = capsys.readouterr()
        assert "opened for reading alone" in told.err
        assert "reading alone" not in told.out
    assert "patients" in (tmp_path / "page.html").read_text()
