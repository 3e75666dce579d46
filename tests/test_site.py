"""The documentation is built strictly, with every example run; in a real browser it asks nobody for anything, and everybody can read it."""

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from api_pages import PUBLIC, public_names
from browser import SCHEMES, WIDTHS, chromium

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# One of each kind: text, code that ran, formulas, the reference, pictures, wide tables.
SHOWN = ("index", "start", "theory", "reference/lethe.schedules", "choose/epsilon", "gallery", "cli")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. mkdocs fails on a link that leads nowhere, a page that the menu lacks, and an example that does not run."""
    pytest.importorskip("material", reason="the documentation's packages are not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    for shown, path in PUBLIC.items():
        page = (site / "reference" / f"{shown}.html").read_text()
        for name in public_names(importlib.import_module(path)):
            assert f'id="{path}.{name}"' in page, f"{shown}.{name}"


@pytest.mark.slow
def test_no_page_names_another_host_for_anything_it_loads(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe|source|video|audio)[^>]*\ssrc="(https?:|//)[^"]*"', text)
        styles = [link for link in re.findall(r"<link[^>]*>", text) if re.search(r'href="(https?:|//)', link) and "canonical" not in link]
        assert not loaded, page
        assert not styles, page
    for style in site.rglob("*.css"):
        assert not re.search(r"""(url\(|@import\s+)["']?(https?:|//)""", style.read_text()), style


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on the loopback interface."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_it_can_be_read_on_every_screen(address: str) -> None:
    # The theme's switch between light and dark is two hidden radio buttons, whose labels a script shows; axe takes them for unlabelled.
    # Formulas are pictures with hidden MathML beside them; axe is minutes over a page of proofs.
    apart = ("mjx-container", ".md-option")
    with chromium() as page:
        page.open(f"{address}/index.html")
        for name in SHOWN:
            for width, scheme in ((width, scheme) for width in WIDTHS for scheme in SCHEMES):
                page.look(width, scheme)
                page.driver.execute_script("localStorage.clear()")  # the theme remembers the scheme that it was first shown in
                page.open(f"{address}/{name}.html")
                seen = f"{name} at {width}, {scheme}"
                assert page.complaints() == [], seen
                assert all(one.startswith(address) for one in page.requests()), seen
                assert page.overflow() <= 0, seen
                # Every width and every scheme once: colours do not depend on the width, nor what folds away on the colours.
                if (width == WIDTHS[0]) is (scheme == "light"):
                    assert page.violations(without=apart) == [], seen
            shown = page.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert shown != "rgb(255, 255, 255)", "the last look was a dark one"


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")))
def test_a_page_says_where_to_go_next(page: str) -> None:
    """Pages that people read from top to bottom; the reference is none, nor is a list of theorems."""
    text = (DOCS / page).read_text()
    if page in ("index.md", "theorems.md", "notation.md", "theory.md", "cli.md") or page.startswith("reference/"):
        return
    assert "## Where to go next" in text, page
