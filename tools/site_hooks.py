"""Pages and scripts of the documentation that are made while it is built: the reference, the changelog, and MathJax from its package."""

from importlib.metadata import distribution
from pathlib import Path

from api_pages import api_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent

# One file with all of TeX and no fonts to fetch.
_MATHJAX = "mathjax/static/mathjax/es5/tex-svg-full.js"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what is generated to the files of docs/."""
    for path, text in api_pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "changelog.md", content=(ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")))
    mathjax = distribution("django-static-mathjax").locate_file(_MATHJAX)
    files.append(File.generated(config, "javascripts/mathjax.js", abs_src_path=str(mathjax)))
    return files
