"""The import order of the tree, what importing lethe loads, and the public names."""

import subprocess
import sys
from pathlib import Path

import import_graph
from repository import ROOT

import lethe


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--config", ROOT / "pyproject.toml", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_lethe_stays_light() -> None:
    heavy = ("torch", "sklearn", "matplotlib", "jinja2", "lethe.report.writing", "sqlalchemy", "dp_accounting", "pyarrow", "scipy.stats")
    heavy += ("shiny", "dask", "pandas")
    modules = "lethe, lethe.calculus.guarantees, lethe.calculus.sampled.gaussian"
    code = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_is_named() -> None:
    """One new process imports lethe, which none of these may be needed for; a fork of it lacks each."""
    missing = [
        ("torch", "lethe.train", "train"),
        ("matplotlib", "lethe.report.plots", "report"),
        ("jinja2", "lethe.report.formats", "report"),
        ("shiny", "lethe.studio.server", "studio"),
        ("sqlalchemy", "lethe.ledger", "ledger"),
        ("alembic", "lethe.ledger", "ledger"),
        ("dp_accounting", "lethe.integrations.dp_accounting", "dp-accounting"),
    ]
    code = "\n".join(
        [
            "import importlib, os, sys, lethe",
            f"for missing, module, _ in {missing}:",
            "    if (child := os.fork()) == 0:",
            "        assert missing not in sys.modules",
            "        sys.modules[missing] = None",
            "        try: importlib.import_module(module)",
            "        except lethe.MissingExtraError as error: print(missing, module, str(error).replace(chr(10), ' '), flush=True)",
            "        os._exit(0)",
            "    os.waitpid(child, 0)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(missing), done.stderr
    for line, (name, module, extra) in zip(lines, missing, strict=True):
        assert line.startswith(f"{name} {module} ")
        assert f'pip install "lethe-dp[{extra}]"' in line


def test_every_public_name_exists_once() -> None:
    assert len(set(lethe.__all__)) == len(lethe.__all__)
    assert all(hasattr(lethe, name) for name in lethe.__all__)
    assert {"Run", "certify", "plan", "batches", "guarantees", "losses", "schedules", "Certificate"} <= set(lethe.__all__)


MOST_ROOMS, MOST_ARROWS, MOST_FILES, MOST_LINES = 25, 131, 15, 360


def test_rooms_and_arrows_stay_few() -> None:
    assert len(import_graph.rooms()) <= MOST_ROOMS
    assert len(import_graph.arrows()) <= MOST_ARROWS


def test_nothing_lies_loose_at_the_root_of_the_package() -> None:
    assert {path.name for path in (ROOT / "lethe").glob("*.py")} == {"__init__.py", "__main__.py"}


def test_no_folder_is_crowded() -> None:
    folders = [path.parent for path in ROOT.glob("lethe/**/__init__.py")]
    assert {folder.name: count for folder in folders if (count := len(list(folder.glob("*.py")))) > MOST_FILES} == {}


def test_no_file_is_a_heap() -> None:
    files = [path for folder in ("lethe", "lethe_experiments", "tests", "benchmarks", "tools") for path in ROOT.glob(f"{folder}/**/*.py")]
    heaps = [f"{path.relative_to(ROOT)}: {lines}" for path in files if (lines := len(path.read_text().splitlines())) > MOST_LINES]
    assert heaps == []
