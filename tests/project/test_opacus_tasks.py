"""Ten tasks in the words of Opacus and of Lethe: Lethe's run, Opacus' compile, and the page counts their lines as they are."""

import re
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

PAGE = ROOT / "docs" / "tutorials" / "from_opacus.md"
TASKS = PAGE.parent / "opacus_tasks"
NAMES = ("epsilon", "loop", "accumulation", "resume", "schedule", "lora", "processes", "two_losses", "freeze", "early_stopping")
COUNTED = {name: (int(theirs), int(ours)) for name, theirs, ours in re.findall(r"\| `(\w+)` \|.*\| (\d+) \| (\d+) \|", PAGE.read_text())}


def _lines(path: Path) -> int:
    """Lines that are neither empty nor a comment, imports included."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in path.read_text().splitlines())


def test_every_task_is_there_in_both() -> None:
    assert {path.stem for path in TASKS.glob("*_*.py")} == {f"{name}_{library}" for name in NAMES for library in ("opacus", "lethe")}
    assert tuple(COUNTED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_lethe_takes_no_more_lines_and_the_page_says_how_many(name: str) -> None:
    theirs, ours = TASKS / f"{name}_opacus.py", TASKS / f"{name}_lethe.py"
    compile(theirs.read_text(), theirs.name, "exec")
    assert COUNTED[name] == (_lines(theirs), _lines(ours))
    assert _lines(ours) <= _lines(theirs)


def _run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(TASKS)
    sys.modules.pop("prelude", None)  # another model for every task
    try:
        return runpy.run_path(str(TASKS / f"{name}_lethe.py"))
    finally:
        sys.modules.pop("prelude", None)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("lora", "processes")])
def test_a_task_ends_at_the_epsilon_it_asks_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = _run(name, tmp_path, monkeypatch)
    certificate = names["fitted"] if "fitted" in names else names["engine"]
    epsilon = certificate.epsilon() if "engine" in names else certificate.epsilon
    assert epsilon == pytest.approx(3.0, abs=1e-3)


def test_the_interrupted_task_goes_on_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _run("resume", tmp_path, monkeypatch)["fitted"]
    again = _run("resume", tmp_path, monkeypatch)["fitted"]
    assert all((a == b).all() for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))


def test_the_task_of_several_processes_runs_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("torch.distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free.getsockname()[1], "RANK": 0, "WORLD_SIZE": 1}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    try:
        assert _run("processes", tmp_path, monkeypatch)["fitted"].epsilon == pytest.approx(3.0, abs=1e-3)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_task_of_a_trainer_with_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("datasets", "peft", "transformers"):
        pytest.importorskip(name)
    assert _run("lora", tmp_path, monkeypatch)["trainer"].certificate_.epsilon == pytest.approx(8.0, abs=1e-2)
