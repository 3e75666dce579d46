import json
import math
from pathlib import Path

import pytest
import typer
from helpers import make_run
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from lethe.cli.console import gate

runner = CliRunner()


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    make_run().save(path)
    return path


@pytest.fixture
def bare_file(tmp_path: Path) -> Path:
    """A run whose last touches are followed by no noise."""
    path = tmp_path / "bare.yaml"
    make_run(noise_multiplier=[5.0] * 49 + [0.0]).save(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--json"], ["--all"]])
def test_what_is_not_private_exits_with_1_and_is_printed_all_the_same(bare_file: Path, tmp_path: Path, more: list[str]) -> None:
    kept = tmp_path / "kept.json"
    result = runner.invoke(app, ["certify", str(bare_file), "--delta", "1e-5", "-o", str(kept), *more])
    assert result.exit_code == 1
    assert result.stderr == "lethe: NOT PRIVATE: no epsilon is proved.\n"
    assert lethe.Certificate.load(kept).epsilon == math.inf
    if "--json" in more:
        assert json.loads(result.stdout)["epsilon"] == "inf"
    else:
        assert "NOT PRIVATE" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_explaining_what_is_not_private_exits_with_1(bare_file: Path, tmp_path: Path, more: list[str]) -> None:
    kept = tmp_path / "kept.json"
    runner.invoke(app, ["certify", str(bare_file), "--delta", "1e-5", "-o", str(kept)])
    result = runner.invoke(app, ["explain", str(kept), *more])
    assert result.exit_code == 1
    assert result.stderr.endswith("lethe: NOT PRIVATE: no epsilon is proved.\n")
    assert result.stdout


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--json"], ["--all"]])
def test_max_epsilon_is_a_gate(run_file: Path, more: list[str]) -> None:
    words = ["certify", str(run_file), "--delta", "1e-5", *more]
    free = runner.invoke(app, words)
    epsilon = lethe.certify(make_run(), 1e-5).epsilon
    for limit, status in ((math.nextafter(epsilon, 0.0), 1), (epsilon, 0), (math.nextafter(epsilon, 9.0), 0), (0.0, 1)):
        result = runner.invoke(app, [*words, "--max-epsilon", repr(limit)])
        assert result.exit_code == status
        assert result.stdout == free.stdout
        assert ("is above --max-epsilon" in result.stderr) is (status == 1)
    assert free.exit_code == 0
    assert free.stderr == ""


@pytest.mark.parametrize(("epsilon", "limit"), [(math.nan, None), (math.nan, 1.0), (math.inf, None), (1.0, math.nan), (1.0, 0.5)])
def test_what_is_not_a_number_never_passes(epsilon: float, limit: float | None) -> None:
    gate(0.0, 0.0)
    with pytest.raises(typer.Exit):
        gate(epsilon, limit)
