"""`lethe total`, and the verbs that read statements and totals, as a command."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import MNIST_SIZED
from typer.testing import CliRunner

import lethe
from lethe.accounting.totals import Total
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.cli.app import app
from lethe.documents.strict import write_document
from lethe.mechanisms.base import gaussian_guarantee

RUN = MNIST_SIZED


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate, a statement and a bare guarantee."""
    monkeypatch.chdir(tmp_path)
    lethe.certify(RUN, 1e-6).save("model.json")
    Statement(
        name="mean of 3 columns",
        guarantee=gaussian_guarantee(2.0, 20.0),
        neighbours="replace_one",
        findings=(holds("row norm", "projected", evidence="enforced"),),
        citations=(),
        derivation=derivation("mean of rows", norm=1.0, noise_std=20.0),
        records=60_000,
        target_delta=1e-6,
    ).save("mean.json")
    write_document("bare.json", lethe.guarantees.GDP(0.1).to_dict())
    return tmp_path


def called(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, lethe.LetheError):
        assert status == 2, str(result.exception)
        return str(result.exception)
    assert result.exit_code == status, result.output
    return result.output


def test_it_prints_one_short_table(files: Path) -> None:
    text = called("total", "model.json", "mean.json", "--delta", "1e-6")
    found = lethe.total(["model.json", "mean.json"], 1e-6)
    mu = math.hypot(lethe.certify(RUN, 1e-6).guarantee.mu, 0.1)  # pyright: ignore[reportAttributeAccessIssue]
    assert found.epsilon == pytest.approx(lethe.guarantees.GDP(mu).epsilon(1e-6), rel=1e-12)
    assert text.startswith(found.title)
    assert re.search(r"model\.json +1 +0\.916 +0\.2182-GDP +computed", text)
    assert re.search(r"mean\.json +1 +[\d.]+ +0\.1001-GDP +computed", text)
    assert "declared, and proved by nothing: mean.json: by the word of the file that code saw to it: row norm" in text
    assert len(text.splitlines()) < 25


@pytest.mark.slow
def test_it_writes_json_that_it_reads_again(files: Path) -> None:
    content = json.loads(called("total", "model.json", "mean.json", "--delta", "1e-6", "--json", "-o", "total.json"))
    assert content["kind"] == "total"
    assert [part["name"] for part in content["parts"]] == ["model.json", "mean.json"]
    assert json.loads(Path("total.json").read_text()) == content
    assert called("explain", "total.json").startswith(Total.load("total.json").title)
    assert json.loads(called("explain", "total.json", "--json")) == content
    more = json.loads(called("total", "total.json", "bare.json", "--neighbours", "replace_one", "--delta", "1e-6", "--json"))
    assert len(more["parts"]) == 3
    assert more["epsilon"] > content["epsilon"]
    assert "hold the same release" in called("total", "total.json", "model.json", "--delta", "1e-6", status=2)
    answers = json.loads(called("verify", "total.json", "--json", status=1))
    assert answers["follows"]["yes"]
    assert answers["private"]["yes"]
    assert not answers["sealed"]["yes"]


@pytest.mark.slow
def test_counts_limits_and_the_delta_at_an_epsilon(files: Path) -> None:
    one, three = (
        json.loads(called("total", "mean.json", "bare.json", *counts, "--neighbours", "replace_one", "--delta", "1e-6", "--json"))
        for counts in ((), ("--count", "1", "--count", "3"))
    )
    assert one["epsilon"] == pytest.approx(lethe.guarantees.GDP(math.sqrt(0.02)).epsilon(1e-6), rel=1e-12)
    assert three["epsilon"] == pytest.approx(lethe.guarantees.GDP(math.sqrt(0.04)).epsilon(1e-6), rel=1e-12)
    assert "--count: given 1 times for 2 files" in called("total", "mean.json", "bare.json", "--count", "3", "--delta", "1e-6", status=2)
    back = json.loads(called("total", "mean.json", "--epsilon", "0.4", "--json"))
    assert back["delta"] == pytest.approx(lethe.guarantees.GDP(0.1).delta(0.4), rel=1e-9)
    called("total", "mean.json", "--delta", "1e-6", "--max-epsilon", "1")
    called("total", "mean.json", "--delta", "1e-6", "--max-epsilon", "0.1", status=1)
    called("total", "mean.json", "--epsilon", "0.01", status=1)  # its delta is above 1/records
    called("total", "mean.json", "--epsilon", "0.01", "--allow-large-delta")
    write_document("nothing.json", {"kind": "not_private"})
    assert "NOT PRIVATE" in called("total", "nothing.json", "--neighbours", "replace_one", "--epsilon", "1", status=1)
    for options in ((), ("--delta", "1e-6", "--epsilon", "1")):
        assert "needs one of the two" in called("total", "mean.json", *options, status=2)
    assert "below 1/records" in called("total", "mean.json", "--delta", "0.1", status=2)
    assert "says no neighbouring relation" in called("total", "bare.json", "--delta", "1e-6", status=2)


@pytest.mark.slow
def test_a_statement_is_explained_and_verified(files: Path) -> None:
    text = called("explain", "mean.json")
    assert "by  mean of 3 columns    0.1001-GDP" in text
    assert "computed   mean of rows: noise_std = 20, norm = 1" in text
    assert "(the file says: enforced by the code that trains)" in text
    answers = json.loads(called("verify", "mean.json", "--json", status=1))  # nobody sealed it
    assert [answers[name]["yes"] for name in ("follows", "private", "sealed")] == [True, True, False]
    content = json.loads(Path("mean.json").read_text())
    content["derivation"]["parameters"]["noise_std"] = 10.0
    Path("altered.json").write_text(json.dumps(content))
    for verb in (("explain",), ("total", "--delta", "1e-6")):
        assert "does not follow from its mechanism" in called(verb[0], "altered.json", *verb[1:], status=2)
    assert not json.loads(called("verify", "altered.json", "--json", status=1))["follows"]["yes"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "mean", "total"])
def test_a_certificate_is_not_certified_but_explained_or_verified(files: Path, name: str) -> None:
    lethe.total(["mean.json"], 1e-6).save("total.json")
    kind = {"model": "certificate", "mean": "statement", "total": "total"}[name]
    for verb in ("certify", "compare", "plan"):
        text = called(verb, f"{name}.json", "--delta", "1e-6", *(("--epsilon", "1") if verb == "plan" else ()), status=2)
        assert f"{name}.json is a {kind}, not a run" in text
        assert f"`lethe explain {name}.json`" in text
        assert f"`lethe verify {name}.json`" in text


@pytest.mark.slow
def test_units_of_privacy_are_kept_apart(files: Path) -> None:
    lethe.certify(RUN.replace(unit="user"), 1e-6).save("users.json")
    assert "replace one user, 1 release together" in called("total", "users.json", "--delta", "1e-6")
    assert "different units" in called("total", "users.json", "model.json", "--delta", "1e-6", status=2)
    bare = ("total", "users.json", "bare.json", "--neighbours", "replace_one", "--delta", "1e-6")
    assert "different units" in called(*bare, status=2)
    assert json.loads(called(*bare, "--unit", "user", "--json"))["unit"] == "user"
