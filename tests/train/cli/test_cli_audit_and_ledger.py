"""The verbs `audit` and `ledger`: exit status, and what they print and write."""

import csv
import json
import sys
from pathlib import Path

import pytest
from audited_callables import ABOUT, described, place, written
from entry_point import status
from helpers import make_run
from typer.testing import CliRunner

import lethe
from lethe.audit.page import AuditPage
from lethe.cli.app import app
from lethe.jobs.audit import AuditJob

pytest.importorskip("matplotlib")
pytest.importorskip("sqlalchemy")

LIE = {"epsilon": 0.1, "delta": 0.0, **ABOUT}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return place(tmp_path, monkeypatch)


def test_an_honest_claim_exits_with_0_and_writes_what_it_was_asked_for(folder: Path) -> None:
    words = ["audit", str(written(folder)), "-o", "page.yaml", "--plot", "audit.png", "--report", "audit.html"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert result.stdout.index("the claim: (4, 0)-DP") < result.stdout.index("certified") < result.stdout.index("consistent: no certified")
    assert AuditPage.load("page.yaml") == AuditJob(**described()).execute().page
    assert Path("audit.png").read_bytes().startswith(b"\x89PNG")
    assert "consistent: no certified" in Path("audit.html").read_text()


def test_json_is_the_documented_object(folder: Path) -> None:
    result = CliRunner().invoke(app, ["audit", str(written(folder)), "--json"])
    content = json.loads(result.stdout)
    assert set(content) == {"verdict", "subject", "canary", "claim", "audits", "refused", "certificate", "lethe"}
    assert content["verdict"] == "consistent"
    assert content["certificate"] is None


def test_a_refuted_claim_exits_with_1_in_red_and_still_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    config = written(folder, subject_claim=LIE)
    result = CliRunner().invoke(app, ["audit", str(config), "-o", "page.json"])
    assert result.exit_code == 1
    assert any("REFUTED" in line and "\x1b[1;31m" in line for line in result.stdout.splitlines())
    assert any("certified" in line and "\x1b[1;31m" in line for line in result.stdout.splitlines())
    assert AuditPage.load("page.json").failed
    assert json.loads(CliRunner().invoke(app, ["audit", str(config), "--json"]).stdout)["verdict"] == "refuted"
    assert status("audit", config) == 1
    honest = CliRunner().invoke(app, ["audit", str(written(folder))]).stdout
    assert "\x1b[1;31m" not in honest


def test_interrupted_it_says_how_to_go_on_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(folder, score_file="scores.jsonl")
    monkeypatch.setenv("STOP_AT", "100")
    assert status("audit", config, "-o", "page.json") == 130
    assert capsys.readouterr() == (
        "",
        "lethe: interrupted; the scores of 99 trainings are kept in scores.jsonl. The same command goes on from there.\n",
    )
    assert not Path("page.json").exists()
    monkeypatch.delenv("STOP_AT")
    already = sys.modules["mechanism"].TRAININGS
    assert status("audit", config, "-o", "page.json") == 0
    assert sys.modules["mechanism"].TRAININGS - already == 200 - 99
    assert AuditPage.load("page.json") == AuditJob(**described()).execute().page


def test_kept_scores_are_not_judged_at_another_level(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("audit", written(folder, score_file="scores.jsonl")) == 0
    assert status("audit", written(folder, score_file="scores.jsonl", level=0.4)) == 2
    assert "this was declared" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stop", "changes", "words"),
    [("1", {"score_file": "scores.jsonl"}, "before the first score"), ("100", {}, "no score was kept. With score_file: scores.jsonl")],
)
def test_interrupted_without_scores_it_leaves_nothing_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stop: str, changes: dict[str, str], words: str
) -> None:
    monkeypatch.setenv("STOP_AT", stop)
    assert status("audit", written(folder, **changes)) == 130
    assert words in capsys.readouterr().err
    assert not Path("scores.jsonl").exists()


@pytest.fixture
def ledger(tmp_path, capsys) -> str:
    path = str(tmp_path / "ledger.sqlite")
    assert status("ledger", "create", path, "patients", "--neighbours", "replace_one", "--epsilon", "3", "--delta", "1e-6") == 0
    capsys.readouterr()
    return path


def test_a_release_from_its_reservation_to_the_page(ledger, tmp_path, capsys) -> None:
    lethe.certify(make_run(), delta=1e-6).save(tmp_path / "certificate.json")
    assert status("ledger", "reserve", ledger, "patients", str(tmp_path / "certificate.json"), "--by", "team A", "--json") == 0
    number = json.loads(capsys.readouterr().out)["reservation"]
    assert status("ledger", "start", ledger, str(number)) == 0
    assert status("ledger", "settle", ledger, str(number), str(tmp_path / "certificate.json"), "--artefact", "a" * 64) == 0
    assert status("ledger", "reserve", ledger, "patients", "--rho", "0.001", "--slack", "1e-9", "--by", "=team()") == 0
    assert status("ledger", "void", ledger, str(number + 3), "--reason", "never begun") == 0
    capsys.readouterr()
    assert status("ledger", "show", ledger, "--json") == 0
    (account,) = json.loads(capsys.readouterr().out)
    assert [line["state"] for line in account["reservations"]] == ["settled", "voided"]
    assert status("ledger", "show", ledger, "patients") == 0
    assert "you can still train once with epsilon up to" in (shown := capsys.readouterr().out)
    assert "team A" in shown
    assert status("ledger", "export", ledger, "-o", str(tmp_path / "page.html")) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.index("Declared, and proved") < page.index("<caption>Reservations")
    assert "<script" not in page
    assert status("ledger", "export", ledger, "-o", str(tmp_path / "table.csv")) == 0
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [row["by"] for row in rows] == ["team A", "'=team()"]


def test_the_budget_over_time_is_drawn(ledger, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    assert status("ledger", "reserve", ledger, "patients", "--mu", "0.1") == 0
    assert status("ledger", "show", ledger, "--plot", str(tmp_path / "budget.svg")) == 0
    assert "% of the budget" in (tmp_path / "budget.svg").read_text()
    assert status("ledger", "show", ledger, "--plot", str(tmp_path / "budget.png")) == 0


def test_what_does_not_fit_is_status_2_and_writes_nothing(ledger, capsys) -> None:
    assert status("ledger", "reserve", ledger, "patients", "--mu", "3") == 2
    told = capsys.readouterr().err
    assert "you can still train once with epsilon up to" in told
    assert "Do:" in told
    assert status("ledger", "show", ledger, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["reservations"] == []


def test_verify_says_the_head_and_finds_that_it_is_missing(ledger, capsys) -> None:
    assert status("ledger", "verify", ledger, "--json") == 0
    head = json.loads(capsys.readouterr().out)["head"]
    assert status("ledger", "verify", ledger, "--head", head) == 0
    assert status("ledger", "verify", ledger, "--head", "0" * 63 + "1") == 1
    assert "written down" in capsys.readouterr().err


def test_a_ledger_that_may_only_be_read_is_shown_verified_and_exported(ledger, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("lethe.ledger.database.Database.read_only", True)
    for words in (["show", ledger, "--json"], ["verify", ledger, "--json"], ["export", ledger, "-o", str(tmp_path / "page.html")]):
        assert status("ledger", *words) == 0
        told = capsys.readouterr()
        assert "opened for reading alone" in told.err
        assert "reading alone" not in told.out
    assert "patients" in (tmp_path / "page.html").read_text()
