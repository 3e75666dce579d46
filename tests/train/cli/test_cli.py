import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import batches, make_run
from how_many import by_night
from repository import ROOT
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app, main
from lethe.theorems.registry import ALL

runner = CliRunner()


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    make_run().save(path)
    return path


def _call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Exit status of the real entry point, with its error handling."""
    monkeypatch.setattr(sys, "argv", ["lethe", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.slow
def test_the_example_says_what_the_readme_prints() -> None:
    root = ROOT
    result = runner.invoke(app, ["certify", str(root / "examples" / "last_iterate.yaml"), "--delta", "1e-6", "--json"])
    assert f"({math.ceil(1e4 * json.loads(result.stdout)['epsilon']) / 1e4}, 1e-06)-DP" in (root / "README.md").read_text()


@pytest.mark.slow
def test_certify_json_is_the_documented_object(run_file: Path) -> None:
    result = runner.invoke(app, ["certify", str(run_file), "--delta", "1e-5", "--json"])
    content = json.loads(result.stdout)
    assert set(content) == {
        "epsilon",
        "delta",
        "theorem",
        "guarantee",
        "neighbours",
        "release",
        "lipschitz",
        "hypotheses",
        "others",
        "citations",
        "run",
        "lethe",
    }
    assert content["epsilon"] == lethe.certify(make_run(), 1e-5).epsilon
    assert set(content["lipschitz"]) == {"constant", "certificate"}
    assert {"name", "status", "evidence", "detail"} == set(content["hypotheses"][0])
    assert {"theorem", "status", "epsilon", "why"} == set(content["others"][0])


@pytest.mark.slow
@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled", "poisson"])
def test_certify_all_gives_a_reason_for_every_theorem(tmp_path: Path, design: str) -> None:
    path = tmp_path / "run.yaml"
    make_run(batches=batches(design, 10)).save(path)
    result = runner.invoke(app, ["certify", str(path), "--delta", "1e-5", "--all"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for name in (*(theorem.name for theorem in ALL), "used"):
        assert name in result.stdout
    content = json.loads(runner.invoke(app, ["certify", str(path), "--delta", "1e-5", "--all", "--json"]).stdout)
    assert {content["theorem"], *(other["theorem"] for other in content["others"])} == {theorem.name for theorem in ALL}


@pytest.mark.slow
def test_compare_prints_every_theorem_and_writes_a_folder(run_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    words = ["compare", str(run_file), "--delta", "1e-5"]
    result = runner.invoke(app, [*words, "-o", str(folder)], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert all(theorem.name in result.stdout for theorem in ALL)
    assert {file.name for file in folder.iterdir()} == {"comparison.json", "comparison.csv", "comparison.png"}
    content = json.loads(runner.invoke(app, [*words, "--json"]).stdout)
    assert content == json.loads((folder / "comparison.json").read_text())
    assert content["epsilon"] == lethe.certify(make_run(), 1e-5, ALL).epsilon


@pytest.mark.slow
def test_compare_along_a_sweep(run_file: Path, tmp_path: Path) -> None:
    words = ["compare", str(run_file), "--delta", "1e-5", "--over", "steps", "--values", "50,1e2,10"]
    result = runner.invoke(app, [*words, "-o", str(tmp_path / "sweep")], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "smallest proved" in result.stdout
    content = json.loads(runner.invoke(app, [*words, "--json"]).stdout)
    assert content["values"] == [10, 50, 100]
    assert content["certified"][1]["epsilon"] == lethe.certify(make_run(), 1e-5, ALL).epsilon
    assert content == json.loads((tmp_path / "sweep" / "comparison.json").read_text())


@pytest.mark.slow
def test_compare_of_some_theorems(run_file: Path) -> None:
    words = ["compare", str(run_file), "--delta", "1e-5"]
    result = runner.invoke(app, [*words, "--theorems", "composition, feldman-2018"])
    assert result.exit_code == 0
    assert {theorem.name for theorem in ALL if theorem.name in result.stdout} == {"composition", "feldman-2018"}
    whole, short = runner.invoke(app, words).stdout, runner.invoke(app, [*words, "--applicable"]).stdout
    assert "mironov-2019" in whole
    assert "mironov-2019" not in short
    assert "more do not apply" in short
    assert len(json.loads(runner.invoke(app, [*words, "--applicable", "--json"]).stdout)["rows"]) == len(ALL)


@pytest.mark.slow
def test_in_a_pipe_no_name_is_cut(run_file: Path) -> None:
    names = {theorem.name for theorem in ALL}
    sweep = lethe.compare(make_run(), 1e-5, over="steps")
    spoken = {line[0].theorem for line in sweep.lines if any(row.epsilon is not None for row in line)}
    for words, expected in ((["certify", "--all"], names), (["compare"], names), (["compare", "--over", "steps"], spoken)):
        page = runner.invoke(app, [*words, str(run_file), "--delta", "1e-5"], env={"COLUMNS": "20"}).stdout
        assert expected <= {line.split()[0] for line in page.splitlines() if line.strip()}


@pytest.mark.slow
def test_plan_writes_a_run_that_meets_the_target(run_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "planned.yaml"
    result = runner.invoke(app, ["plan", str(run_file), "--epsilon", "1", "--delta", "1e-5", "--json", "-o", str(out)])
    content = json.loads(result.stdout)
    assert set(content) == {"noise_multiplier", "run", "certificate"}
    assert content["certificate"]["epsilon"] <= 1
    assert lethe.Run.load(out).noise_multiplier == content["noise_multiplier"]


@pytest.mark.slow
def test_explain_repeats_what_certify_said(run_file: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.json"
    first = runner.invoke(app, ["certify", str(run_file), "--delta", "1e-5", "-o", str(certificate)])
    second = runner.invoke(app, ["explain", str(certificate)])
    assert first.stdout.strip() in second.stdout
    assert "arXiv" in second.stdout


@pytest.mark.nightly(by_day="test_no_colour_where_none_is_wanted_and_no_progress_where_it_is_quiet")
@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "lethe", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == lethe.__version__


def test_every_verb_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"lethe {command.callback.__name__}" in page


@pytest.mark.slow
def test_plan_chooses_a_schedule_and_draws_it(run_file: Path, tmp_path: Path) -> None:
    words = ["plan", str(run_file), "--epsilon", "1", "--delta", "1e-5", "--schedule", "auto", "--influence", "0.97"]
    result = runner.invoke(app, [*words, "--plot", str(tmp_path / "noise.png"), "-o", str(tmp_path / "planned.yaml")])
    assert result.exit_code == 0
    assert "joint" in result.stdout
    assert (tmp_path / "noise.png").read_bytes().startswith(b"\x89PNG")
    assert lethe.certify(lethe.Run.load(tmp_path / "planned.yaml"), 1e-5).epsilon <= 1.0
    content = json.loads(runner.invoke(app, [*words, "--json"]).stdout)
    assert content["allocation"]["schedule"] == "joint"
    names = ["uniform", "pass_ends", "exponential", "influence", "joint", "correlated", "poisson"]
    assert [row["schedule"] for row in content["allocation"]["candidates"]] == names
    if by_night():
        lethe.schedules.Influence(rate=0.97, basis="assumed").save(tmp_path / "influence.json")
        same = json.loads(runner.invoke(app, [*words[:-1], str(tmp_path / "influence.json"), "--json"]).stdout)
        assert same["run"] == content["run"]


def test_plan_writes_a_run_with_correlated_noise_and_says_what_each_noise_would_give(run_file: Path, tmp_path: Path) -> None:
    words = ["plan", str(run_file), "--epsilon", "1", "--delta", "1e-5", "--schedule"]
    result = runner.invoke(app, [*words, "correlated", "-o", str(tmp_path / "planned.yaml")])
    assert result.exit_code == 0
    assert "later steps take part of it back" in " ".join(result.stdout.split())
    planned = lethe.Run.load(tmp_path / "planned.yaml")
    assert planned.noise is not None
    assert 0.999 < lethe.certify(planned, 1e-5).epsilon <= 1.0
