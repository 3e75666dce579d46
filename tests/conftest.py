"""How hypothesis runs: no deadlines (machines are shared), the same examples by day every time, fresh ones by night.

25 examples of each test; a hundred in `make nightly`, which asks for the profile `night` (how_many.py: of tests with their own).
What the night finds is written to `.hypothesis/found.txt`, with the line that draws it again; who mends it keeps the value as a test.

Where keys are: no test signs with, or makes, a key of whoever runs it. And which cases wait for the night.
"""

import gc
import os
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from typer import testing
from typer.main import get_command

# Before NumPy and PyTorch are imported: with a worker for each core, threads of small products wait for each other, ten times as long.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

settings.register_profile("night", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("day", settings.get_profile("night"), max_examples=25, derandomize=True)
settings.load_profile("day")


@pytest.fixture(scope="session", autouse=True)
def _keys_of_the_tests_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Processes that tests start see it too."""
    folder = tmp_path_factory.mktemp("config")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        patch.delenv("LETHE_SIGNING_KEY", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _verbs_made_once() -> Iterator[None]:
    """Every call of the command by typer's runner would read the signatures of all forty verbs anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(get_command))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write down what failed on examples that nobody draws again by chance."""
    failed = [report for report in terminalreporter.getreports("failed") if "@reproduce_failure" in report.longreprtext]
    if settings().derandomize or not failed:
        return
    path = terminalreporter.config.rootpath / ".hypothesis" / "found.txt"
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        for report in failed:
            lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            file.write("\n".join([report.nodeid, *lines, "", ""]))
    terminalreporter.write_line(f"what hypothesis found is in {path}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: the garbage collector need not look through millions of objects for it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is `sampled(k)`, one case in k is run by day, the same ones every time; `make nightly` runs all, and nightly/ too."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if "nightly" in item.path.parent.parts:
            item.add_marker("nightly")
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_one_test in cases.values():
        mark = of_one_test[0].get_closest_marker("sampled")
        assert mark is not None
        mixed = sorted(of_one_test, key=lambda item: zlib.crc32(item.name.encode()))
        for place, item in enumerate(mixed):
            if place % mark.args[0]:
                item.add_marker("nightly")
