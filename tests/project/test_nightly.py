"""What waits for the night has a test that guards the same by day, and of sampled cases the same ones are run every day."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import ROOT

TESTS = ROOT / "tests"


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Of the files that speak of the night: the others are not worth the time of parsing them."""
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "mark.nightly" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path.name, node


def names() -> set[str]:
    return {name for path in TESTS.rglob("test_*.py") for name in re.findall(r"^ *def (test_\w+)\(", path.read_text(), flags=re.MULTILINE)}


def marks(node: ast.FunctionDef, name: str) -> list[ast.Call]:
    return [
        mark
        for mark in node.decorator_list
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == name and "mark" in ast.dump(mark.func)
    ]


def test_every_test_of_the_night_names_one_that_guards_the_same_by_day() -> None:
    everything = list(functions())
    by_night = {node.name for _, node in everything if marks(node, "nightly")}
    by_day = names() - by_night
    for file, node in everything:
        for mark in marks(node, "nightly"):
            named = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
            assert named.get("by_day") in by_day, f"{file}: {node.name}"
    # Of single cases too; there the guard may also be "the same test" of another case.
    for path in TESTS.rglob("test_*.py"):
        for guard in re.findall(r'by_day="(\w+)"', path.read_text()):
            assert guard in by_day, f"{path.name}: {guard}"


CHOSEN = ["test_many[0]", "test_many[2]", "test_many[4]", "test_many[9]", "test_one"]


def test_one_case_in_k_is_run_by_day_and_all_by_night(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    nightly\n    sampled\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.sampled(3)\n@pytest.mark.parametrize('i', range(10))\ndef test_many(i):\n    pass\n"
        "@pytest.mark.sampled(3)\ndef test_one():\n    pass\n"
    )

    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not nightly"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    printed = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=True).stdout
    assert "5/11 tests collected" in printed
    # In another process, and on another day, the same ones.
    assert [line.partition("::")[2] for line in printed.splitlines() if "::" in line] == CHOSEN


@pytest.mark.parametrize("profile", ["day", "night"])
def test_the_day_draws_the_same_every_time_and_the_night_writes_down_what_it_finds(profile: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "from hypothesis import given, strategies as st\n@given(st.integers(0, 2**64))\ndef test_some(number):\n"
        "    open('drawn.txt', 'a').write(f'{number} ')\n    assert number < 2**40\n"
    )

    def drawn() -> str:
        (tmp_path / "drawn.txt").unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"]
        alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "1"}
        subprocess.run([*command, f"--hypothesis-profile={profile}"], cwd=tmp_path, env=alone, capture_output=True, text=True)
        return (tmp_path / "drawn.txt").read_text()

    first, found = drawn(), tmp_path / ".hypothesis" / "found.txt"
    assert (drawn() == first) == (profile == "day")
    assert found.exists() == (profile == "night")
    if profile == "night":
        assert "test_it.py::test_some" in found.read_text()
        assert "@reproduce_failure(" in found.read_text()
