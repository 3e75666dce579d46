"""What the command tells by itself: examples that run, names on Tab, and quiet and colourless pages where these are wanted."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from audited_callables import place, written
from helpers import make_run
from repository import ROOT
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app

VERBS = {str(command.name or command.callback.__name__): command.callback for command in app.registered_commands if command.callback}
SLOW = ("demo", "train")  # both train
EXAMPLE = re.compile(r"^\s*Such as: (lethe .*)$", re.MULTILINE)


def _example(verb: str) -> str:
    found = EXAMPLE.findall(VERBS[verb].__doc__ or "")
    assert len(found) == 1, f"lethe {verb} --help shows no example"
    return found[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_an_example_of_itself(verb: str) -> None:
    assert _example(verb).split()[:2] == ["lethe", verb]
    shown = " ".join(CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "300"}).stdout.split())
    assert _example(verb) in shown
    assert verb in ("key", "studio") or "--quiet" in shown


def test_the_page_of_the_command_shows_every_verb_its_example_and_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r'```python exec="on"\n(.*?)```', (ROOT / "docs" / "cli.md").read_text(), flags=re.S):
        exec(compile(block, "cli.md", "exec"), {})
    shown = capsys.readouterr().out
    sections = dict(part.split("\n", 1) for part in shown.split("### ")[1:])
    commands: Any = typer.main.get_command(app)
    for verb in VERBS:
        section = sections[f"lethe {verb}"]
        assert _example(verb) in section
        options = [parameter for parameter in commands.commands[verb].params if parameter.param_type_name == "option"]
        assert all(option.opts[-1] in section for option in options)
    assert {"lethe ledger reserve", "lethe ledger settle", "lethe ledger verify"} <= sections.keys()
    certified = shown.partition("`lethe certify run.yaml --delta 1e-6 --json`")[2].partition("`lethe plan")[0]
    assert all(f'"{key}"' in certified for key in ("epsilon", "theorem", "hypotheses", "evidence", "citations", "run"))


def _table(folder: Path) -> None:
    """A table, and what `lethe train` would have written for it."""
    pytest.importorskip("torch")
    from lethe.jobs.training import Job

    (folder / "table.csv").write_text("size,label\n" + "".join(f"{size},{'big' if size > 50 else 'small'}\n" for size in range(100)))
    fields = {
        "data": {"path": "table.csv", "target": "label", "classes": ["small", "big"]},
        "columns": {"size": {"range": [0, 100]}},
        "model": {"estimator": "logistic_regression", "feature_norm": 1.0},
        "privacy": {"epsilon": 5.0, "delta": 1e-5},
    }
    Job(**fields).train(folder / "trained")  # pyright: ignore[reportArgumentType]


def _prepared(verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the example names."""
    monkeypatch.chdir(folder)
    make_run().save("run.yaml")
    if verb == "audit":
        place(folder, monkeypatch)
        assert written(folder) == folder / "audit.yaml"
    if verb == "train":
        shutil.copy(ROOT / "examples" / "train_digits.yaml", "train.yaml")
    if verb in ("init", "predict"):
        _table(folder)
    if verb == "explain":
        assert CliRunner().invoke(app, shlex.split(_example("certify"))[1:]).exit_code == 0
    if verb == "verify":
        from seal_cases import WEIGHTS, sealed_content

        from lethe.documents.strict import write_document

        (folder / "trained").mkdir()
        write_document("trained/certificate.json", sealed_content())
        np.savez("trained/weights.npz", **WEIGHTS)
    if verb == "studio":
        pytest.importorskip("shiny")
        monkeypatch.setattr(
            "lethe.studio.server.serve", lambda *_, report_address, **__: report_address("http://127.0.0.1:8421/")
        )  # it would serve until somebody interrupts it
    if verb == "total":
        assert CliRunner().invoke(app, ["certify", "run.yaml", "--delta", "1e-6", "-o", "model.json"]).exit_code == 0
        lethe.certify(make_run(noise_multiplier=9.0), 1e-6).save("statistics.json")


# By day test_own_data_and_the_files_written runs the demo.
@pytest.mark.parametrize("verb", [pytest.param(verb, marks=pytest.mark.nightly) if verb == "demo" else verb for verb in VERBS])
def test_the_example_of_every_verb_runs(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if verb == "audit":
        pytest.importorskip("joblib")
    if verb in SLOW:
        pytest.importorskip("torch")
    _prepared(verb, tmp_path, monkeypatch)
    words = shlex.split(_example(verb))[1:]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.stdout.strip()
    for option, name in pairwise(words):
        assert option != "-o" or Path(name).exists()


def _run(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}, **environment}
    return subprocess.run([sys.executable, "-m", "lethe", *words], cwd=folder, env=given, capture_output=True, text=True, timeout=60)


STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLOUR = re.compile(r"\x1b\[[0-9;]*?(3[0-7]|9[0-7]|38;[0-9;]+)m")


def test_no_colour_where_none_is_wanted_and_no_progress_where_it_is_quiet(tmp_path: Path) -> None:
    make_run().save(tmp_path / "run.yaml")
    words = ["compare", "run.yaml", "--delta", "1e-5", "--theorems", "optimal-shift,composition"]
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    loud, quiet = _run(words, tmp_path, **terminal), _run([*words, "--quiet"], tmp_path, **terminal, NO_COLOR="1")
    assert "comparing" in loud.stderr
    assert COLOUR.search(loud.stdout + loud.stderr)
    assert quiet.stderr == ""
    assert not COLOUR.search(quiet.stdout)
    assert STYLE.sub("", quiet.stdout) == STYLE.sub("", loud.stdout)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lethe compare run.yaml --theorems optimal-shift,compo", "optimal-shift,composition"),
        ("lethe compare run.yaml --over weak", "weak_convexity"),
        ("lethe plan run.yaml --schedule infl", "influence"),
        ("lethe reproduce hong", "hong-figure-1"),
        ("lethe comp", "compare"),
    ],
)
def test_tab_completes_names(shell: str, typed: str, offered: str) -> None:
    environment = {"_LETHE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    if shell == "bash":
        environment |= {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    assert offered in CliRunner().invoke(app, [], env=environment, prog_name="lethe").stdout
    assert "lethe" in CliRunner().invoke(app, [], env={"_LETHE_COMPLETE": f"source_{shell}"}, prog_name="lethe").stdout
