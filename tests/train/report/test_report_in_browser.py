"""The report as people see it: in a real browser, narrow and wide, light and dark, and on paper."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import SCHEMES, WIDTHS, Page, Scheme, chromium
from helpers import make_run
from how_many import by_night
from report_cases import audit_page, hostile_record
from seal_cases import DELTA

import lethe.report

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    found = {name: folder / f"{name}.html" for name in ("sealed", "declared", "seeded")}
    curves = [{"name": "loss", "steps": [1, 2, 3], "values": [3.0, 2.0, 1.5]}]
    lethe.report.write(hostile_record(), found["sealed"], delta=DELTA, audits=[audit_page(9.0)], curves=curves, private=True)
    lethe.report.write(make_run(passes=20), found["declared"], delta=DELTA)
    lethe.report.write(make_run(seeded=True), found["seeded"], delta=DELTA)
    return found


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


_EVERYWHERE = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]


# The first page has every kind of notice, table and picture.
@pytest.mark.parametrize(
    ("name", "examined"),
    [("sealed", _EVERYWHERE if by_night() else _EVERYWHERE[:1]), ("declared", [(360, "light")]), ("seeded", [(1440, "dark")])],
)
def test_it_is_readable_everywhere_and_asks_nobody(
    page: Page, pages: dict[str, Path], name: str, examined: list[tuple[int, Scheme]]
) -> None:
    page.requests()
    page.open(pages[name])
    assert page.requests() == [pages[name].as_uri()]
    page.unfold()
    for width, scheme in _EVERYWHERE:
        page.look(width, scheme)
        assert page.overflow() <= 0, (width, scheme)
        if (width, scheme) in examined:
            assert page.violations() == [], (width, scheme)
    assert page.complaints() == []
    assert page.requests() == []


def test_dark_is_dark_and_paper_is_white(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["declared"])
    ground = "return getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in SCHEMES:
        page.look(1440, scheme)
        seen[scheme] = sum(int(part) for part in page.driver.execute_script(ground).strip("rgb()").split(","))
    assert seen["dark"] < 150 < 600 < seen["light"]
    page.look(800, "dark", media="print")
    assert page.driver.execute_script(ground) == "rgb(255, 255, 255)"
    assert page.driver.execute_script("return getComputedStyle(document.querySelector('.skip')).display") == "none"


def test_words_in_pictures_are_as_large_as_small_print_on_a_telephone(page: Page, pages: dict[str, Path]) -> None:
    page.open(pages["declared"])
    page.unfold()
    page.look(360, "light")
    words = "[...document.querySelectorAll('figure svg text')].map(one => one.getBoundingClientRect())"
    sizes = page.driver.execute_script(f"return {words}.map(one => Math.min(one.width, one.height))")
    heights = [size for size in sizes if size > 0]
    assert len(heights) > 20
    assert sorted(heights)[len(heights) // 2] >= 8


def test_what_is_not_on_the_first_screen_is_folded_away_but_not_on_paper(page: Page, pages: dict[str, Path], tmp_path: Path) -> None:
    page.open(pages["declared"])
    page.shown_everywhere(tmp_path, "report")
    page.look(1280)
    for words in ("#guarantee .lead", "#guarantee dl", "#guarantee figure"):
        box = page.driver.execute_script("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", words)
        assert 0 < box["top"] < box["bottom"] <= 900, words
    height = "return document.documentElement.scrollHeight"
    folded = {width: page.look(width) or page.driver.execute_script(height) for width in (1280, 390)}
    assert folded[1280] < 2500
    assert folded[390] < 3000
    titles = [heading.get_attribute("textContent") for heading in page.driver.find_elements("css selector", "h2")]
    assert len(titles) == len(set(titles)) > 8
    page.look(1280, media="print")
    assert page.driver.execute_script(height) > 3 * folded[1280]
