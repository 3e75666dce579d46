"""Every recipe of examples/recipes trains at its small size, moves its model, and proves the epsilon that it was told."""

import json
import math
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("trl")

import torch
from gpu_recipes import FOLDER, RECIPES

STEPS = 3


@pytest.fixture(autouse=True)
def randomness() -> Iterator[None]:
    """Recipes seed the global generators."""
    with torch.random.fork_rng():
        yield


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_trains(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "argv", [recipe.name, *f"--size small --epsilon 4 --steps {STEPS} --json {results}".split()])
    runpy.run_path(str(recipe), run_name="__main__")
    printed, numbers = capsys.readouterr().out, json.loads(results.read_text())
    assert numbers.pop("steps") == STEPS
    assert 3.9 < numbers["epsilon"] <= 4.0
    assert 0 < numbers["delta"] < 1e-2
    assert f"({numbers['epsilon']:.4g}, " in printed
    assert numbers.pop("moved") == 1.0
    assert set(numbers) > {"epsilon", "delta", "seconds_per_step", "hours", "gibibytes"}
    assert all(math.isfinite(number) for number in numbers.values())


def test_what_cannot_be_loaded_is_said_plainly() -> None:
    downloading = runpy.run_path(str(FOLDER / "arguments.py"))["downloading"]
    with pytest.raises(SystemExit, match=r"(?s)A model cannot be loaded: no network\n.*--size small"), downloading("A model"):
        raise ConnectionError("no network\nand more")


@pytest.mark.nightly(by_day="test_what_cannot_be_loaded_is_said_plainly")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_without_a_network_a_recipe_says_so(recipe: Path, tmp_path: Path) -> None:
    nowhere = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HOME": str(tmp_path)}
    nowhere |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, str(recipe), "--steps", "1"]
    done = subprocess.run(command, env={**os.environ, **nowhere}, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert "cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr
