"""Pages and scripts of the documentation that are made while it is built: the reference, the changelog, and MathJax from its package."""

import os
import re
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from api_pages import api_pages
from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from sklearn.datasets import load_breast_cancer

from lethe.estimators import EstimatorOptions, LogisticRegression
from lethe.report.subject import described, subject_of
from lethe.report.writing import written

ROOT = Path(__file__).resolve().parent.parent

_PYODIDE = "_markdown_exec_pyodide"
# One file with all of TeX and no fonts to fetch; and what sets formulas only when they come into view.
_MATHJAX = {"mathjax.js": "tex-svg-full.js", "ui/lazy.js": "ui/lazy.js"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is generated to the files of docs/."""
    for path, text in api_pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "changelog.md", content=(ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")))
    files.append(File.generated(config, "example_report.html", content=example_report()))
    for path in sorted((ROOT / "benchmarks" / "measurements").glob("*.md")):
        name = f"measurements/{path.name}"  # linked from the pages, in no menu
        files.append(File.generated(config, name, content=path.read_text(), inclusion=InclusionLevel.NOT_IN_NAV))
    for script, source in _MATHJAX.items():
        path = distribution("django-static-mathjax").locate_file(f"mathjax/static/mathjax/es5/{source}")
        files.append(File.generated(config, f"javascripts/{script}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Shows the code of the pages that $LETHE_PAGES_NOT_RUN names and does not run it: `make test` leaves the longest to `make nightly`."""
    if page.file.src_uri in os.environ.get("LETHE_PAGES_NOT_RUN", "").split():
        return re.sub(r'^```python exec="on".*$', "```python", markdown, flags=re.M)
    return markdown


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Leaves out what markdown-exec adds to every page for code that runs in the browser: we have none, and it loads from another host."""
    config.extra_css = [path for path in config.extra_css if _PYODIDE not in str(path)]
    config.extra_javascript = [path for path in config.extra_javascript if _PYODIDE not in str(path)]
    return env


def on_post_build(config: MkDocsConfig) -> None:
    """Removes the files of the same."""
    for path in Path(config.site_dir).rglob(f"*{_PYODIDE}*"):
        path.unlink()


def example_report() -> str:
    """The report of a model of a public table of tumours."""
    options = EstimatorOptions(mechanism="pass_ends", whiten=False)
    model = LogisticRegression(epsilon=2.0, delta=1e-5, feature_norm=3.0, classes=[0, 1], options=options)
    rows, labels = load_breast_cancer(return_X_y=True)
    most = np.asarray(rows).max(axis=0)  # a public table: of a private one ranges are stated
    subject = subject_of(model.fit(2.0 * rows / most - 1.0, labels))
    words = {
        "purpose": "Which tumours a doctor should look at first",
        "data_set": "Breast Cancer Wisconsin, of scikit-learn",
        "by": "A. Bell",
    }
    return written(described(subject, **words), ".html")
