"""The verbs of a run and of what was proved: what they print, write and answer by their exit status."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from helpers import MNIST_SIZED, batches, make_run
from how_many import by_night
from repository import ROOT
from seal_cases import DELTA, WEIGHTS, make_record, sealed_content, stranger
from typer.testing import CliRunner

import lethe
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import holds
from lethe.certificates.keys import signing_key
from lethe.certificates.statement import Statement
from lethe.cli.app import app
from lethe.cli.console import gate
from lethe.documents.strict import write_document
from lethe.mechanisms.base import gaussian_guarantee
from lethe.theorems.registry import ALL

NAMES = {theorem.name for theorem in ALL}


def called(*words: object, status: int = 0) -> str:
    """What is printed; of an error its text."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    if isinstance(result.exception, lethe.LetheError):
        assert status == 2, str(result.exception)
        return str(result.exception)
    assert result.exit_code == status, result.output
    return result.stdout


def parsed(*words: object, status: int = 0) -> Any:
    return json.loads(called(*words, "--json", status=status))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs, certificates, a statement, a bare guarantee, weights and keys."""
    monkeypatch.chdir(tmp_path)
    make_run().save("run.yaml")
    make_run(noise_multiplier=[5.0] * 49 + [0.0]).save("bare.yaml")  # whose last touches are followed by no noise
    lethe.certify(MNIST_SIZED, 1e-6).save("model.json")
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
    write_document("gdp.json", lethe.guarantees.GDP(0.1).to_dict())
    write_document("sealed.json", sealed_content())
    lethe.certify(make_run(), DELTA).save("typed.json")
    lethe.certify(make_record(run=make_run(noise_multiplier=0.0)), DELTA).save("open.json")
    lethe.certify(make_record(), 0.9, allow_large_delta=True).save("large.json")
    np.savez("weights.npz", **WEIGHTS)
    np.savez("other.npz", **{**WEIGHTS, "intercept": np.zeros(2)})
    Path("own.pem").write_text(signing_key().public.pem())
    Path("other.pem").write_text(stranger().public.pem())
    return tmp_path


def test_the_example_says_what_the_readme_prints_and_json_is_the_documented_object(files: Path) -> None:
    content = parsed("certify", ROOT / "examples" / "last_iterate.yaml", "--delta", "1e-6")
    assert f"({math.ceil(1e4 * content['epsilon']) / 1e4}, 1e-06)-DP" in (ROOT / "README.md").read_text()
    keys = "epsilon delta theorem guarantee neighbours release lipschitz hypotheses others citations run lethe"
    assert set(content) == set(keys.split())
    assert parsed("certify", "run.yaml", "--delta", "1e-5")["epsilon"] == lethe.certify(make_run(), 1e-5).epsilon
    assert set(content["lipschitz"]) == {"constant", "certificate"}
    assert {"name", "status", "evidence", "detail"} == set(content["hypotheses"][0])
    assert {"theorem", "status", "epsilon", "why"} == set(content["others"][0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled", "poisson"])
def test_certify_all_gives_a_reason_for_every_theorem(files: Path, design: str) -> None:
    make_run(batches=batches(design, 10)).save("run.yaml")
    page = called("certify", "run.yaml", "--delta", "1e-5", "--all")
    assert all(name in page for name in (*NAMES, "used", str(lethe.certify(make_run(batches=batches(design, 10)), 1e-5).attack_rates())))
    assert "heuristic, no proof" in page
    content = parsed("certify", "run.yaml", "--delta", "1e-5", "--all")
    assert {content["theorem"], *(other["theorem"] for other in content["others"])} == NAMES


def test_compare_prints_every_theorem_sweeps_and_writes_a_folder(files: Path) -> None:
    words = ["compare", "run.yaml", "--delta", "1e-5"]
    page = called(*words, "-o", "comparison")
    assert all(name in page for name in NAMES)
    assert {file.name for file in Path("comparison").iterdir()} == {"comparison.json", "comparison.csv", "comparison.png"}
    content = parsed(*words)
    assert content == json.loads(Path("comparison/comparison.json").read_text())
    assert content["epsilon"] == lethe.certify(make_run(), 1e-5, ALL).epsilon
    sweep = [*words, "--over", "steps", "--values", "50,1e2,10"]
    assert "smallest proved" in called(*sweep, "-o", "sweep")
    content = parsed(*sweep)
    assert content["values"] == [10, 50, 100]
    assert content["certified"][1]["epsilon"] == lethe.certify(make_run(), 1e-5, ALL).epsilon
    assert content == json.loads(Path("sweep/comparison.json").read_text())
    chosen = called(*words, "--theorems", "composition, feldman-2018")
    assert {name for name in NAMES if name in chosen} == {"composition", "feldman-2018"}
    short = called(*words, "--applicable")
    assert "mironov-2019" in page
    assert "mironov-2019" not in short
    assert "more do not apply" in short


def test_in_a_pipe_no_name_is_cut(files: Path) -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="steps")
    spoken = {line[0].theorem for line in sweep.lines if any(row.epsilon is not None for row in line)}
    for words, expected in ((["certify", "--all"], NAMES), (["compare"], NAMES), (["compare", "--over", "steps"], spoken)):
        page = CliRunner().invoke(app, [*words, "run.yaml", "--delta", "1e-5"], env={"COLUMNS": "20"}).stdout
        assert expected <= {line.split()[0] for line in page.splitlines() if line.strip()}


def test_plan_meets_the_target_chooses_a_schedule_and_draws_it(files: Path) -> None:
    words = ["plan", "run.yaml", "--epsilon", "1", "--delta", "1e-5"]
    content = parsed(*words, "-o", "planned.yaml")
    assert set(content) == {"noise_multiplier", "run", "certificate"}
    assert content["certificate"]["epsilon"] <= 1
    assert lethe.Run.load("planned.yaml").noise_multiplier == content["noise_multiplier"]
    words += ["--schedule", "auto", "--influence", "0.97"]
    assert "joint" in called(*words, "--plot", "noise.png", "-o", "shaped.yaml")
    assert Path("noise.png").read_bytes().startswith(b"\x89PNG")
    assert lethe.certify(lethe.Run.load("shaped.yaml"), 1e-5).epsilon <= 1.0
    if by_night():
        lethe.schedules.Influence(rate=0.97, basis="assumed").save("influence.json")
        content = parsed(*words[:-1], "influence.json")
        assert content["run"] == lethe.Run.load("shaped.yaml").to_document()
        names = ["uniform", "pass_ends", "exponential", "influence", "joint", "correlated", "poisson"]
        assert [row["schedule"] for row in content["allocation"]["candidates"]] == names
    page = called(*words[:-4], "--schedule", "correlated", "-o", "planned.yaml")
    assert "later steps take part of it back" in " ".join(page.split())
    assert 0.999 < lethe.certify(lethe.Run.load("planned.yaml"), 1e-5).epsilon <= 1.0


def test_explain_repeats_what_certify_said_and_says_that_words_are_of_another_version(files: Path) -> None:
    first = called("certify", "run.yaml", "--delta", "1e-5", "-o", "certificate.json")
    second = called("explain", "certificate.json")
    assert first.strip() in second
    assert "arXiv" in second
    content = {**json.loads(Path("certificate.json").read_text()), "lethe": "0.0.9"}
    content["citations"][0]["text"] = "Nobody 2031"
    write_document("old.json", content)
    result = CliRunner().invoke(app, ["explain", "old.json"])
    assert result.exit_code == 0
    assert "Nobody 2031" not in result.output
    assert "written by lethe 0.0.9, with the same numbers but other citations" in result.stderr


@pytest.mark.parametrize("more", [[], ["--json"], ["--all"]])
def test_max_epsilon_and_what_is_not_private_shut_the_gate(files: Path, more: list[str]) -> None:
    bare = CliRunner().invoke(app, ["certify", "bare.yaml", "--delta", "1e-5", "-o", "kept.json", *more])
    assert (bare.exit_code, bare.stderr) == (1, "lethe: NOT PRIVATE: no epsilon is proved.\n")
    assert lethe.Certificate.load("kept.json").epsilon == math.inf
    assert '"inf"' in bare.stdout or "NOT PRIVATE" in bare.stdout
    explained = CliRunner().invoke(app, ["explain", "kept.json", *more])
    assert (explained.exit_code, bool(explained.stdout)) == (1, True)
    words, epsilon = ["certify", "run.yaml", "--delta", "1e-5", *more], lethe.certify(make_run(), 1e-5).epsilon
    free = called(*words)
    for limit, status in ((math.nextafter(epsilon, 0.0), 1), (epsilon, 0), (0.0, 1)):
        result = CliRunner().invoke(app, [*words, "--max-epsilon", repr(limit)], env={"COLUMNS": "200"})
        assert (result.exit_code, result.stdout) == (status, free)
        assert ("is above --max-epsilon" in result.stderr) is (status == 1)


@pytest.mark.parametrize(("epsilon", "limit"), [(math.nan, None), (math.nan, 1.0), (math.inf, None), (1.0, math.nan), (1.0, 0.5)])
def test_what_is_not_a_number_never_passes(epsilon: float, limit: float | None) -> None:
    gate(0.0, 0.0)
    with pytest.raises(typer.Exit):
        gate(epsilon, limit)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("sealed.json --weights weights.npz --key own.pem --max-epsilon 10", 0),
        ("sealed.json --weights other.npz", 1),
        ("sealed.json --key other.pem", 1),
        ("sealed.json --max-epsilon 0.5", 1),
        ("typed.json", 1),
        ("open.json", 1),
        ("large.json --max-epsilon 10", 1),
        ("large.json --max-epsilon 10 --allow-large-delta", 0),
        ("sealed.json --weights bare.yaml", 2),
        ("sealed.json --weights nowhere.npz", 2),
        ("sealed.json --key sealed.json", 2),
    ],
)
def test_the_exit_status_of_verify_is_the_answer(files: Path, words: str, status: int) -> None:
    called("verify", *words.split(), status=status)
    if status < 2:
        assert parsed("verify", *words.split(), status=status)["yes"] is (status == 0)


def test_verify_answers_each_question_in_a_line_and_in_a_documented_object(files: Path) -> None:
    content = parsed("verify", "sealed.json", "--weights", "weights.npz")
    assert set(content) == {"yes", "follows", "private", "sealed", "belongs", "within", "declared", "note"}
    assert all(set(content[name]) == {"yes", "why"} for name in ("follows", "private", "sealed", "belongs"))
    assert content["within"] is None
    assert [line.split(":")[0] for line in content["declared"]] == ["release", "start"]
    lines = called("verify", "sealed.json", "--weights", "weights.npz", "--max-epsilon", "3").splitlines()
    for question in ("follows from its run", "private", "sealed", "belongs to weights.npz", "epsilon at most 3"):
        assert any(line.split("  ")[0].strip() == question and " yes " in line for line in lines), question
    assert any(line.startswith("declared, and proved by nothing: release") for line in lines)


def test_the_public_key_is_printed_and_believed_and_the_private_one_never_shown(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = called("key")
    assert printed == signing_key().public.pem()
    assert "PRIVATE" not in printed
    called("key", "-o", "key.pem")
    assert Path("key.pem").read_text() == printed
    assert parsed("key") == {"fingerprint": signing_key().public.fingerprint, "pem": printed}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(files / "elsewhere"))
    alone = called("explain", "sealed.json")
    assert "declared   gradient bound" in alone
    assert "(the file says: enforced by lethe.train)" in alone
    told = called("explain", "sealed.json", "--key", "own.pem")
    assert "enforced   gradient bound" in told
    assert "the file says" not in told


def test_total_prints_one_short_table_and_writes_json_that_it_reads_again(files: Path) -> None:
    text = called("total", "model.json", "mean.json", "--delta", "1e-6")
    found = lethe.total(["model.json", "mean.json"], 1e-6)
    assert text.startswith(found.title)
    assert re.search(r"model\.json +1 +0\.916 +0\.2182-GDP +computed", text)
    assert re.search(r"mean\.json +1 +[\d.]+ +0\.1001-GDP +computed", text)
    assert "declared, and proved by nothing: mean.json: by the word of the file that code saw to it: row norm" in text
    assert len(text.splitlines()) < 25
    content = parsed("total", "model.json", "mean.json", "--delta", "1e-6", "-o", "total.json")
    assert json.loads(Path("total.json").read_text()) == content == parsed("explain", "total.json")
    assert called("explain", "total.json").startswith(found.title)
    more = parsed("total", "total.json", "gdp.json", "--neighbours", "replace_one", "--delta", "1e-6")
    assert len(more["parts"]) == 3
    assert more["epsilon"] > content["epsilon"]
    assert "hold the same release" in called("total", "total.json", "model.json", "--delta", "1e-6", status=2)
    answers = parsed("verify", "total.json", status=1)
    assert [answers[name]["yes"] for name in ("follows", "private", "sealed")] == [True, True, False]


def test_counts_limits_units_and_the_delta_at_an_epsilon(files: Path) -> None:
    for counts, square in (((), 0.02), (("--count", "1", "--count", "3"), 0.04)):
        content = parsed("total", "mean.json", "gdp.json", *counts, "--neighbours", "replace_one", "--delta", "1e-6")
        assert content["epsilon"] == pytest.approx(lethe.guarantees.GDP(math.sqrt(square)).epsilon(1e-6), rel=1e-12)
    assert parsed("total", "mean.json", "--epsilon", "0.4")["delta"] == pytest.approx(lethe.guarantees.GDP(0.1).delta(0.4), rel=1e-9)
    called("total", "mean.json", "--delta", "1e-6", "--max-epsilon", "1")
    called("total", "mean.json", "--delta", "1e-6", "--max-epsilon", "0.1", status=1)
    called("total", "mean.json", "--epsilon", "0.01", status=1)  # its delta is above 1/records
    called("total", "mean.json", "--epsilon", "0.01", "--allow-large-delta")
    write_document("nothing.json", {"kind": "not_private"})
    assert "NOT PRIVATE" in called("total", "nothing.json", "--neighbours", "replace_one", "--epsilon", "1", status=1)
    assert "says no neighbouring relation" in called("total", "gdp.json", "--delta", "1e-6", status=2)
    lethe.certify(MNIST_SIZED.replace(unit="user"), 1e-6).save("users.json")
    assert "replace one user, 1 release together" in called("total", "users.json", "--delta", "1e-6")
    assert "different units" in called("total", "users.json", "model.json", "--delta", "1e-6", status=2)
    bare = ("total", "users.json", "gdp.json", "--neighbours", "replace_one", "--delta", "1e-6")
    assert "different units" in called(*bare, status=2)
    assert parsed(*bare, "--unit", "user")["unit"] == "user"


def test_a_statement_is_explained_and_verified(files: Path) -> None:
    text = called("explain", "mean.json")
    for line in (
        "by  mean of 3 columns    0.1001-GDP",
        "computed   mean of rows: noise_std = 20, norm = 1",
        "enforced by the code that trains)",
    ):
        assert line in text
    answers = parsed("verify", "mean.json", status=1)  # nobody sealed it
    assert [answers[name]["yes"] for name in ("follows", "private", "sealed")] == [True, True, False]
    content = json.loads(Path("mean.json").read_text())
    content["derivation"]["parameters"]["noise_std"] = 10.0
    write_document("altered.json", content)
    for words in (("explain", "altered.json"), ("total", "altered.json", "--delta", "1e-6")):
        assert "does not follow from its mechanism" in called(*words, status=2)
    assert not parsed("verify", "altered.json", status=1)["follows"]["yes"]


@pytest.mark.nightly(by_day="test_no_colour_where_none_is_wanted_and_no_progress_where_it_is_quiet")
def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "lethe", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == lethe.__version__
