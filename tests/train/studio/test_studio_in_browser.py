"""The planner in a real browser: move a control, see certify's number, save the run, certify the file, open the link again."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import WIDTHS, Page, Scheme, chromium
from how_many import by_night
from studio_process import studio
from typer.testing import CliRunner

import lethe
from lethe.calculus.upward_formatting import shown
from lethe.cli.app import app

pytest.importorskip("shiny", reason="the studio needs Shiny")
pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

SMALL = {"records": "2000", "size": "100", "count": "5", "delta": "1e-5"}


@dataclass
class Tab:
    """A page of the planner.

    Args:
        page: the browser's.
        address: of the planner.
        folder: where files that are saved go.
    """

    page: Page
    address: str
    folder: Path

    @property
    def driver(self) -> Any:
        return self.page.driver

    def until(self, holds: Callable[[], Any]) -> Any:
        waiting = WebDriverWait(self.driver, 60, 0.1, [NoSuchElementException, StaleElementReferenceException])
        return waiting.until(lambda _: holds())

    def text(self, selector: str) -> str:
        return self.driver.find_element("css selector", selector).text

    def content(self, selector: str) -> str:
        return self.driver.find_element("css selector", selector).get_attribute("textContent")

    def write(self, **texts: str) -> None:
        """As a person does: by the keyboard, or by choosing from a list."""
        for name, text in texts.items():
            element = self.driver.find_element("id", name)
            if element.tag_name == "select":
                Select(element).select_by_value(text)
            else:
                element.send_keys(Keys.CONTROL, "a")
                element.send_keys(Keys.DELETE, text)

    def fresh(self, width: int = 1440, scheme: Scheme = "light") -> None:
        """The page as it is first opened, with its answer and its prices."""
        self.page.look(width, scheme)
        self.driver.get(self.address)
        self.until(lambda: self.text("#wanted"))

    def box(self, selector: str) -> dict[str, float]:
        """Where something stands on the screen."""
        return self.driver.execute_script("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)

    def said(self) -> lethe.Run:
        """The run that the page shows."""
        file = self.folder / "shown.yaml"
        file.write_text(self.content("#run-yaml"))
        return lethe.Run.load(file)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("saved")
    with chromium() as page, studio() as (_, address):
        page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
        yield Tab(page, address, folder)


def test_from_a_control_to_a_certificate_of_the_saved_run(tab: Tab) -> None:
    tab.fresh()
    tab.page.unfold()
    tab.write(find="epsilon", **SMALL, noise="9.5")

    def ready(noise: float) -> bool:
        run = tab.said()
        return (run.records, run.noise_multiplier, run.passes) == (2000, noise, 5)

    tab.until(lambda: ready(9.5))
    before = lethe.certify(tab.said(), 1e-5)
    assert tab.text("#wanted") == shown(before.epsilon)

    tab.write(noise="4")
    tab.until(lambda: ready(4.0))
    certificate = lethe.certify(tab.said(), 1e-5)
    assert certificate.epsilon > before.epsilon
    assert tab.text("#wanted") == shown(certificate.epsilon)
    tab.page.unfold()
    for row in tab.driver.find_elements("css selector", ".theorems tbody tr"):
        name, epsilon = row.find_element("tag name", "th").text, row.find_elements("tag name", "td")[0].text
        known = {other.theorem: other.epsilon for other in certificate.others} | {certificate.theorem: certificate.epsilon}
        assert epsilon == ("–" if known[name] is None else shown(known[name]))

    # The price of one alternative, as soon as it is there.
    cell = "[data-price='every iterate may be seen'] td"
    assert tab.until(lambda: tab.text(cell)) == shown(lethe.certify(certificate.run.replace(release="all"), 1e-5).epsilon)

    # What is saved, certified by the command.
    tab.driver.find_element("css selector", "[data-save]").send_keys(Keys.ENTER)
    file = tab.folder / "run.yaml"
    tab.until(file.exists)
    result = CliRunner().invoke(app, ["certify", str(file), "--delta", "1e-5", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["epsilon"] == certificate.epsilon

    # The link, in a page of its own, says the same.
    link = tab.driver.current_url
    assert "noise=4" in link
    tab.driver.get(f"{tab.address}?")
    tab.until(lambda: tab.said().records == 60000)
    tab.driver.get(link)
    tab.until(lambda: ready(4.0))
    assert tab.text("#wanted") == shown(certificate.epsilon)
    assert tab.driver.find_element("id", "noise").get_attribute("value") == "4"


def test_a_bad_input_takes_the_number_away_and_a_good_one_brings_it_back(tab: Tab) -> None:
    tab.fresh()
    tab.page.unfold()
    tab.write(delta="0.5")
    tab.until(lambda: "below 1/records" in tab.text(".headline .refusal"))
    assert tab.driver.find_elements("id", "wanted") == []
    assert tab.driver.find_elements("id", "run-yaml") == []
    tab.write(delta="1e-6")
    tab.until(lambda: tab.text("#wanted"))
    assert tab.text("#wanted") == shown(float(lethe.plan(tab.said(), 1.0, 1e-6).noise_multipliers.max()))


def test_no_number_of_another_run_stands_while_one_is_computed_and_nobody_waits_for_it(tab: Tab) -> None:
    """Noise of a schedule on Poisson batches takes seconds to find."""
    tab.fresh()
    tab.page.unfold()
    tab.write(noise="{schedule: exponential, first: 20.0, ratio: 0.9995}", design="poisson", count="30")
    tab.until(lambda: tab.text(".headline .waiting"))
    assert tab.driver.find_elements("id", "wanted") == []
    assert tab.driver.find_elements("id", "run-yaml") == []
    tab.write(design="cyclic")
    tab.until(lambda: tab.said().batches == lethe.batches.Cyclic(600) and tab.said().passes == 30)
    assert tab.text("#wanted") == shown(float(tab.said().noise_multipliers.max()))


@pytest.mark.nightly(by_day="test_from_a_control_to_a_certificate_of_the_saved_run")
def test_a_run_is_opened_from_a_file_and_a_bad_one_is_refused(tab: Tab) -> None:
    tab.fresh()
    tab.page.unfold()
    schedule = lethe.schedules.Exponential(first=20.0, ratio=0.99)
    run = lethe.Run(
        records=3000,
        batches=lethe.batches.Shuffled(30),
        steps=250,
        step_size=0.25,
        clip_norm=0.5,
        noise_multiplier=schedule,
        loss=lethe.losses.Convex(smoothness=0.1),
        regulariser=lethe.regularisers.L2(0.01),
        release="last",
        neighbours="zero_out",
    )
    run.save(tab.folder / "mine.yaml")
    tab.driver.find_element("id", "open").send_keys(str(tab.folder / "mine.yaml"))
    tab.until(lambda: tab.said() == run)
    assert tab.text("#wanted") == shown(lethe.certify(run, 1e-6).epsilon)
    (tab.folder / "bad.yaml").write_text("records: 3\nrelease: never\n")
    tab.driver.find_element("id", "open").send_keys(str(tab.folder / "bad.yaml"))
    assert "release" in tab.until(lambda: tab.text("#notes .refusal"))
    assert tab.said() == run


@pytest.mark.parametrize(("scheme", "widths"), [("light", WIDTHS if by_night() else WIDTHS[1:]), ("dark", WIDTHS[:1])])
def test_the_page_can_be_read_by_everybody_and_asks_nobody_else(tab: Tab, scheme: Scheme, widths: tuple[int, ...]) -> None:
    """How wide a page is changes nothing of its colours."""
    tab.fresh(1440, scheme)
    tab.until(lambda: "computing" not in tab.text(".alternatives"))
    tab.page.kept("studio") if scheme == "light" else None
    for width in widths:
        tab.page.look(width, scheme)
        tab.page.unfold()
        assert tab.page.violations() == []
        assert tab.page.overflow() <= 0
    assert tab.page.complaints() == []
    assert [url for url in tab.page.requests() if not url.startswith((tab.address, "blob:"))] == []


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_first_screen_is_the_answer_four_fields_and_a_picture(tab: Tab, width: int, height: int, tmp_path: Path) -> None:
    tab.fresh(width)
    for selector in ("#wanted", "#records", "#size", "#count", "#epsilon", "svg.price"):
        assert 0 <= tab.box(selector)["top"] < tab.box(selector)["bottom"] <= height, selector
    assert [one.is_displayed() for one in tab.driver.find_elements("css selector", "input[type=text]")].count(True) == 4
    assert not tab.driver.find_element("css selector", "div.theorems, details.theorems table").is_displayed()
    tab.page.shown_everywhere(tmp_path, "studio")
    # Constant noise is no picture.
    assert not tab.driver.find_element("css selector", "details.schedule").is_displayed()


def test_the_dot_is_dragged_and_an_alternative_is_taken(tab: Tab) -> None:
    tab.fresh()
    dot = tab.box("svg.price .chosen")
    for kind, down in (("mousePressed", 5), ("mouseMoved", 45), ("mouseReleased", 45)):
        event = {"type": kind, "x": dot["left"] + 5, "y": dot["top"] + down, "button": "left", "clickCount": 1}
        tab.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    target = tab.driver.find_element("id", "epsilon").get_attribute("value")
    assert 0.3 < float(target) < 0.9  # lower in the picture
    tab.until(lambda: f"({target}," in tab.text(".headline"))
    assert tab.text("#wanted") == shown(float(lethe.plan(tab.said(), float(target), 1e-6).noise_multipliers.max()))
    tab.until(lambda: tab.text("[data-price='half as long'] td") not in ("", "…"))
    needed = tab.text("[data-price='half as long'] td")
    tab.driver.execute_script("document.querySelector('button[data-alternative=\"half as long\"]').click()")
    tab.until(lambda: tab.said().passes == 10)
    assert tab.text("#wanted") == needed


def test_on_a_telephone_an_error_is_in_view_wherever_it_is_made_and_no_table_is_cut(tab: Tab) -> None:
    tab.fresh(390)
    tab.page.unfold()
    tables = "return [...document.querySelectorAll('table, th, td')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    assert tab.driver.execute_script(tables) == 0
    assert tab.page.overflow() <= 0
    tab.write(more="{learning_rate: 1}")
    tab.until(lambda: "learning_rate" in tab.text(".headline .refusal"))
    assert tab.driver.execute_script("return window.scrollY") > 400
    assert 0 <= tab.box(".headline .refusal")["top"] < tab.box(".headline .refusal")["bottom"] <= 844
