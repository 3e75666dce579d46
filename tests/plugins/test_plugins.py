"""A theorem, a loss, a schedule, a layer rule and a mechanism can stand in a package of their own, without a change to Lethe."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_a_package_from_outside_adds_its_parts(tmp_path: Path) -> None:
    shutil.copytree(HERE / "acme", tmp_path / "acme")
    shutil.copy(HERE / "use_acme.py", tmp_path)
    done = subprocess.run([sys.executable, "-W", "error", "use_acme.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "all four are taken"
