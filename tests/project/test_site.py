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
from browser import WIDTHS, Scheme, chromium
from how_many import by_night
from repository import ROOT

DOCS = ROOT / "docs"
LONG = [
    *(path.relative_to(DOCS).as_posix() for path in sorted((DOCS / "tutorials").glob("*.md"))),
    *(f"{name}.md" for name in ("architectures", "cli", "correlated_noise", "gallery", "logging", "partitions", "records", "users")),
    *(f"measurements/{name}.md" for name in ("correlated_noise", "partitions")),
    *("choose/batches.md", "choose/epsilon.md"),
]
"""Tutorials, and pages whose code takes over a second: by day, what they show runs in the tests of what they show."""
# One of each kind: text, code that ran, formulas, the reference, pictures, wide tables.
SHOWN = ("index", "start", "theory", "gallery", "choose/epsilon", "reference/lethe.schedules", "cli")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. mkdocs fails on a link that leads nowhere, a page that the menu lacks, and an example that does not run.

    By day the examples of the longest pages are shown and not run.
    """
    pytest.importorskip("material", reason="the documentation's packages are not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}",
            "NO_MKDOCS_2_WARNING": "1",
            "LETHE_PAGES_NOT_RUN": "" if by_night() else " ".join(LONG),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    for shown, path in PUBLIC.items():
        page = (site / "reference" / f"{shown}.html").read_text()
        for name in public_names(importlib.import_module(path)):
            assert f'id="{path}.{name}"' in page, f"{shown}.{name}"


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


AT_NIGHT = pytest.mark.nightly(by_day="the same test on another screen")


@pytest.mark.parametrize(
    ("width", "scheme", "names"),
    [
        (WIDTHS[0], "light", SHOWN[::4]),
        (WIDTHS[1], "dark", SHOWN[1::4]),
        pytest.param(WIDTHS[0], "light", SHOWN[1::4] + SHOWN[2::4] + SHOWN[3::4], marks=AT_NIGHT),
        pytest.param(WIDTHS[1], "dark", SHOWN[::4] + SHOWN[2::4] + SHOWN[3::4], marks=AT_NIGHT),
        pytest.param(WIDTHS[1], "light", SHOWN, marks=AT_NIGHT),
        pytest.param(WIDTHS[0], "dark", SHOWN, marks=AT_NIGHT),
    ],
)
def test_it_can_be_read_on_every_screen(address: str, width: int, scheme: Scheme, names: tuple[str, ...]) -> None:
    # The theme's switch between light and dark is two hidden radio buttons, whose labels a script shows; axe takes them for unlabelled.
    # Formulas are pictures with hidden MathML beside them.
    apart = ("mjx-container", ".md-option")
    with chromium() as page:
        page.look(width, scheme)
        for name in names:
            page.open(f"{address}/{name}.html")
            # Every width and every scheme once: colours do not depend on the width, nor what folds away on the colours.
            if (width == WIDTHS[0]) is (scheme == "light"):
                assert page.violations(without=apart) == [], name
            if by_night():
                page.driver.execute_script("window.dispatchEvent(new Event('beforeprint'))")  # sets the formulas that are out of view
            assert page.complaints() == [], name
            assert all(one.startswith(address) for one in page.requests()), name
            assert page.overflow() <= 0, name
        shown = page.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (shown == "rgb(255, 255, 255)") is (scheme == "light")


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")))
def test_a_page_says_where_to_go_next(page: str) -> None:
    """Pages that people read from top to bottom; the reference is none, nor is a list of theorems."""
    text = (DOCS / page).read_text()
    if page in ("index.md", "theorems.md", "glossary.md", "theory.md", "cli.md") or page.startswith("reference/"):
        return
    assert "## Where to go next" in text, page
