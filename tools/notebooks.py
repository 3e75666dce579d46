"""Each tutorial as a notebook without outputs, docs/notebooks/NAME.ipynb, made of its page: `make notebooks`."""

import re
from pathlib import Path

import jupytext

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.stem != "index")
NOTEBOOKS = ROOT / "docs" / "notebooks"
# Paths of the pages begin at the top of the distribution.
_TO_THE_TOP = 'import os\nfrom pathlib import Path\n\nif not Path("docs").is_dir():\n    os.chdir("../..")\n\n'


def notebook_of(page: Path) -> str:
    """A page's text and code as a notebook (JSON); what the page draws by `pictures.picture` is drawn by pyplot, its text printed."""
    text = re.sub(r"\]\((\w+)\.md(#[\w-]+)?\)", r"](\1.ipynb)", page.read_text())
    text = re.sub(r"^```sh$", "```text", text, flags=re.M)
    text = re.sub(r"^```python.*?\n(.*?)^```$", lambda block: f"```python\n{_drawn_by_pyplot(block[1])}```", text, flags=re.M | re.S)
    notebook = jupytext.reads(text, "md")
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if any(re.search(r"\b(docs|examples)/", cell.source) for cell in code):
        code[0].source = _TO_THE_TOP + code[0].source
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return jupytext.writes(notebook, "ipynb") + "\n"


def _drawn_by_pyplot(code: str) -> str:
    code = code.replace("from matplotlib.figure import Figure\n", "import matplotlib.pyplot as plt\n").replace("= Figure(", "= plt.figure(")
    code = code.replace("from pictures import picture\n", "")
    return re.sub(r"print\(\s*picture\(\s*figure,\s*(.*?),?\s*\)\s*\)\s*\Z", r"print(\1)\n", code, flags=re.S)


def main() -> None:
    """Write them all."""
    NOTEBOOKS.mkdir(exist_ok=True)
    for page in PAGES:
        (NOTEBOOKS / f"{page.stem}.ipynb").write_text(notebook_of(page))


if __name__ == "__main__":
    main()
