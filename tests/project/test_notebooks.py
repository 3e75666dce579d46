"""Every tutorial is a notebook too, which says what its page says, and runs from top to bottom."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

pytest.importorskip("jupytext")
from notebooks import NOTEBOOKS, PAGES, notebook_of

NEEDED = {"ledger": "sqlalchemy", "lightning": "lightning", "trainer": "datasets", "from_opacus": "sklearn"}


def _code(name: str) -> str:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_the_notebooks_are_those_that_the_pages_make() -> None:
    """Mend with `make notebooks`."""
    assert {path.stem for path in NOTEBOOKS.iterdir()} == {page.stem for page in PAGES}
    for page in PAGES:
        assert (NOTEBOOKS / f"{page.stem}.ipynb").read_text() == notebook_of(page), page.name


@pytest.mark.parametrize("name", [page.stem for page in PAGES])
def test_a_notebook_is_python_that_needs_no_tool_of_the_site(name: str) -> None:
    code = _code(name)
    compile(code, name, "exec")
    assert "pictures import" not in code
    assert "picture(figure" not in code


@pytest.mark.nightly(by_day="test_a_notebook_is_python_that_needs_no_tool_of_the_site")
@pytest.mark.parametrize("name", [page.stem for page in PAGES])
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip(NEEDED.get(name, "torch"))
    script = tmp_path / "notebook.py"
    script.write_text(_code(name))
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, script], cwd=NOTEBOOKS, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
