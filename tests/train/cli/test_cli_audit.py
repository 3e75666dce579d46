import json
import sys
from pathlib import Path

import pytest
from audited_callables import ABOUT, described, place, written
from entry_point import status
from typer.testing import CliRunner

from lethe.audit.page import AuditPage
from lethe.cli.app import app
from lethe.jobs.audit.job import AuditJob

pytest.importorskip("matplotlib")
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
    [
        ("1", {"score_file": "scores.jsonl"}, "before the first score"),
        ("100", {}, "no score was kept. With score_file: scores.jsonl"),
    ],
)
def test_interrupted_without_scores_it_leaves_nothing_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stop: str, changes: dict[str, str], words: str
) -> None:
    monkeypatch.setenv("STOP_AT", stop)
    assert status("audit", written(folder, **changes)) == 130
    assert words in capsys.readouterr().err
    assert not Path("scores.jsonl").exists()
