"""A theorem, a loss, a schedule, a layer rule and a mechanism can stand in a package of their own, without a change to Lethe."""

import contextlib
import io
import os
import runpy
import shutil
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from forked import forking

HERE = Path(__file__).resolve().parent


def use_acme(folder: str, printed: Connection) -> None:
    """In a process of its own, whose registries nobody else sees."""
    os.chdir(folder)
    sys.path[:] = [folder, *(path for path in sys.path if path != str(HERE))]
    warnings.simplefilter("error")
    with contextlib.redirect_stdout(io.StringIO()) as lines:
        runpy.run_path("use_acme.py")
    assert sys.modules["acme"].__file__ == str(Path(folder, "acme.py"))
    printed.send(lines.getvalue())


@pytest.mark.slow
def test_a_package_from_outside_adds_its_parts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("acme.py", "use_acme.py"):
        shutil.copy(HERE / name, tmp_path)
    mine, theirs = forking().Pipe()
    process = forking().Process(target=use_acme, args=(str(tmp_path), theirs), daemon=True)
    process.start()
    process.join(300)
    assert process.exitcode == 0, capfd.readouterr().err
    assert mine.recv().strip() == "all four are taken"
