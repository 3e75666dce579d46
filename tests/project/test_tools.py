"""Scripts of benchmarks/ and tools/: what they measure, what they say where they cannot, and commands that run beside each other."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import beside
import gpu_check
import gpu_recipes
import pytest
import step_cost
import torch
from repository import ROOT

SCRIPT = ROOT / "benchmarks" / "gpu_check.py"


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    assert gpu_check.main() == 2
    assert "no GPU that PyTorch can use was found" in capsys.readouterr().err


@pytest.mark.nightly(by_day="test_processes_take_the_steps_of_one")
def test_over_gloo_every_layout_takes_the_steps_by_hand() -> None:
    told = said("--cpu", "--processes", "2", "--width", "16", "--layers", "1", "--batch", "8", "--steps", "5")
    assert told.returncode == 0, told.stderr
    assert "every layout takes the steps written out by hand" in told.stdout
    assert all(layout in told.stdout for layout in ("bare", "DistributedDataParallel", "fully_shard"))


def test_a_private_step_costs_more_than_a_plain_one_and_little_of_it_is_ours() -> None:
    found = step_cost.measured("mlp", ["plain", "lethe fit", "lethe loop"], 1)
    assert found["plain"]["time"] == found["plain"]["times operations"] == 1
    assert found["plain"]["calls"] == 0
    for engine in ("lethe fit", "lethe loop"):
        cost = found[engine]
        assert cost["times operations"] > 1
        assert 0 < cost["files"] <= cost["functions"] <= cost["calls"] < 1000  # 1112 where losses were looked behind


@pytest.mark.parametrize(("words", "said"), [(["--models", "mlp,vgg"], "got vgg; it knows mlp, cnn"), (["--rounds", "0"], "got 0 rounds")])
def test_it_says_what_it_needs(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["step_cost.py", *words])
    assert step_cost.main() == 2
    assert said in capsys.readouterr().err


def test_a_recipe_that_fails_or_takes_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"seconds_per_step": 0.25, "gibibytes": 1.5, "hours": 2.0, "epsilon": 3.0}
    scripts = {
        "trains": f"import json, sys; json.dump({cost}, open(sys.argv[-1], 'w')); "
        "assert sys.argv[1:5] == '--size random --steps 4'.split()",
        "fails": "raise SystemExit('no such model')",
        "waits": "import time; time.sleep(60)",
    }
    for name, script in scripts.items():
        (tmp_path / f"{name}.py").write_text(script)
    monkeypatch.setattr(gpu_recipes, "RECIPES", [tmp_path / f"{name}.py" for name in scripts])
    monkeypatch.setattr(gpu_recipes, "SECONDS", 5)
    table, failed = gpu_recipes.recipes_table(4, cpu=False)
    assert failed == ["fails", "waits"]
    columns = [list(column.cells) for column in table.columns]
    assert [column[0] for column in columns] == ["trains", "0.25", "1.5", "2", "3"]
    assert columns[1][1:] == ["no such model", "took more than 5 s"]


TOOL = Path(beside.__file__)


@pytest.mark.parametrize(("unseen", "shown", "status"), [(0, 0, 0), (3, 0, 3), (0, 4, 4), (3, 4, 4)])
def test_either_failure_fails_and_the_unseen_command_is_printed_last(
    unseen: int, shown: int, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    code = beside.beside(f"echo lint; echo more >&2; exit {unseen}", ["sh", "-c", f"sleep 0.1; echo tests; exit {shown}"])
    assert code == status
    assert capfd.readouterr().out == "tests\nlint\nmore\n"


def test_both_run_at_once(tmp_path: Path) -> None:
    """Each waits for the other."""
    one, two = tmp_path / "one", tmp_path / "two"
    wait = "touch {}; for _ in $(seq 1000); do test -e {} && exit 0; sleep 0.05; done; exit 1"
    assert beside.beside(wait.format(one, two), ["sh", "-c", wait.format(two, one)]) == 0


def test_a_command_that_a_signal_ends_has_failed() -> None:
    assert beside.beside("kill -TERM $$", ["true"]) == 143


def read(pipe: int, seconds: float, enough: bytes | None) -> bytes:
    """What is written to a pipe, until it is `enough` or, where that is None, until nobody holds its other end any more."""
    told, until = b"", time.monotonic() + seconds
    while told != enough:
        assert time.monotonic() < until, told
        time.sleep(0.01)
        with suppress(BlockingIOError):
            some = os.read(pipe, 100)
            told += some
            if enough is None and not some:
                break
    return told


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_both_and_all_that_they_started(how: signal.Signals, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    pipe = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    start = f"exec 3> {tmp_path}/held; echo up >&3; exec sleep 300"
    nested = f'sh -c "{start}"; true'  # a shell with a child of its own
    with subprocess.Popen([sys.executable, TOOL, nested, "sh", "-c", start], start_new_session=True) as running:
        assert read(pipe, 60, b"up\nup\n")
        # A terminal sends Ctrl-C to every process of the group; whoever ends make sends SIGTERM to one.
        os.killpg(running.pid, how) if how is signal.SIGINT else running.send_signal(how)
        assert running.wait(60) == 130
    assert read(pipe, 60, None) == b""
    os.close(pipe)
