"""Every recipe of examples/recipes trains at its small size, moves its model, and proves the epsilon that it was told."""

import json
import math
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")
pytest.importorskip("trl")

import torch
from gpu_recipes import FOLDER, RECIPES

import lethe

# What transformers, peft and TRL say is theirs; what Lethe says is an error.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error::lethe.errors.LetheWarning")]
STEPS = 3
LEARNT = {
    "dpo": ("preferred", 0.75),
    "gpt2_e2e": ("bleu", 25.0),
    "qlora_7b_sst2": ("accuracy", 0.8),
    "roberta_sst2": ("accuracy", 0.8),
    "vit_cifar10": ("accuracy", 0.5),
    "diffusion": ("accuracy", 0.6),
    "recommender": ("hit_rate", 0.12),
    "graph_network": ("accuracy", 0.8),
    "federated_averaging": ("accuracy", 0.8),
}
"""A score, and what it is above after the small training at epsilon 8. It begins with a half or a tenth, 5 BLEU or a hit rate of .01."""


@pytest.fixture(autouse=True)
def randomness() -> Iterator[None]:
    """Recipes seed the global generators."""
    with torch.random.fork_rng():
        yield


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What a recipe writes of its training at the small size."""

    def results_of(recipe: Path, *options: str) -> dict[str, Any]:
        results = tmp_path / "results.json"
        monkeypatch.syspath_prepend(FOLDER)
        argv = [recipe.name, "--size", "small", "--json", str(results), "--output", str(tmp_path / "model"), *options]
        monkeypatch.setattr(sys, "argv", argv)
        runpy.run_path(str(recipe), run_name="__main__")
        return json.loads(results.read_text())

    return results_of


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_trains(recipe: Path, trained: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = trained(recipe, "--epsilon", "4", "--steps", str(STEPS))
    printed = capsys.readouterr().out
    certificate = lethe.Certificate.load(tmp_path / "model" / "certificate.json")
    assert (certificate.epsilon, certificate.delta) == (numbers["epsilon"], numbers["delta"])
    assert any(path.suffix in (".safetensors", ".pt") for path in (tmp_path / "model").iterdir())
    assert numbers.pop("steps") == STEPS
    assert 3.9 < numbers["epsilon"] <= 4.0
    assert 0 < numbers["delta"] < 1e-2
    assert f"({numbers['epsilon']:.4g}, " in printed
    assert numbers.pop("moved") == 1.0
    assert set(numbers) > {"epsilon", "delta", "seconds_per_step", "hours", "gibibytes"}
    assert all(math.isfinite(number) for number in numbers.values())


@pytest.mark.nightly(by_day="test_a_recipe_trains")
@pytest.mark.parametrize("recipe", LEARNT)
def test_a_recipe_learns(recipe: str, trained: Callable[..., dict[str, Any]]) -> None:
    score, least = LEARNT[recipe]
    numbers = trained(FOLDER / f"{recipe}.py", "--epsilon", "8")
    assert numbers[score] > least
    assert numbers["epsilon"] <= 8.0


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
    done = subprocess.run(command, env={**os.environ, **nowhere}, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    assert "cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr
