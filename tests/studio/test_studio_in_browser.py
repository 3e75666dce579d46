"""The planner in a real browser: move a control, see certify's number, save the run, certify the file, open the link again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from studio_process import studio
from typer.testing import CliRunner

import lethe
from lethe.calculus.upward_formatting import shown
from lethe.cli.app import app

pytest.importorskip("shiny", reason="the studio needs Shiny")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

pytestmark = pytest.mark.slow
BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
SMALL = {"records": "2000", "size": "100", "count": "5", "delta": "1e-5"}


class Tab:
    """One tab of a browser without a window, which saves files in `folder`."""

    def __init__(self, driver: Any, address: str, folder: Path) -> None:
        self.driver, self.address, self.folder = driver, address, folder
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def look(self, width: int, scheme: str) -> None:
        shape = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

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

    def said(self) -> lethe.Run:
        """The run that the page shows."""
        file = self.folder / "shown.yaml"
        file.write_text(self.content("#run-yaml"))
        return lethe.Run.load(file)

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def strangers(self) -> list[str]:
        """The addresses elsewhere that the page asked for."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith((self.address, "data:", "blob:"))]

    def axe(self) -> list[str]:
        """The rules of WCAG 2.1 AA and of good practice that are broken."""
        axe = pytest.importorskip("axe_selenium_python", reason="axe-selenium-python is not installed")
        script = Path(axe.__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
        self.driver.execute_script(script.read_text())
        found = self.driver.execute_async_script("const done = arguments[0]; axe.run(document).then(done);")
        return [f"{one['id']}: {[node['target'] for node in one['nodes'][:4]]}" for one in found["violations"]]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    if BROWSER is None or DRIVER is None:
        pytest.skip("no Chromium with its chromedriver is installed")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with studio() as (_, address):
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
        try:
            driver.set_script_timeout(60)
            yield Tab(driver, address, tmp_path_factory.mktemp("saved"))
        finally:
            driver.quit()


def test_from_a_control_to_a_certificate_of_the_saved_run(tab: Tab) -> None:
    tab.look(1440, "light")
    tab.driver.get(tab.address)
    tab.until(lambda: tab.text("#wanted"))
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
    tab.driver.get(tab.address)
    tab.until(lambda: tab.text("#wanted"))
    tab.write(delta="0.5")
    tab.until(lambda: "below 1/records" in tab.text(".headline .refusal"))
    assert tab.driver.find_elements("id", "wanted") == []
    assert tab.driver.find_elements("id", "run-yaml") == []
    tab.write(delta="1e-6")
    tab.until(lambda: tab.text("#wanted"))
    assert tab.text("#wanted") == shown(float(lethe.plan(tab.said(), 1.0, 1e-6).noise_multipliers.max()))


def test_a_run_is_opened_from_a_file_and_a_bad_one_is_refused(tab: Tab) -> None:
    tab.driver.get(tab.address)
    tab.until(lambda: tab.text("#wanted"))
    schedule = lethe.Exponential(first=20.0, ratio=0.99)
    run = lethe.Run(
        records=3000,
        batches=lethe.Shuffled(size=30),
        steps=250,
        step_size=0.25,
        clip_norm=0.5,
        noise_multiplier=schedule,
        loss=lethe.losses.Convex(smoothness=0.1),
        regulariser=lethe.Ridge(strength=0.01),
        release="last",
        neighbours="zero_out",
    )
    run.save(tab.folder / "mine.yaml")
    tab.driver.find_element("id", "open").send_keys(str(tab.folder / "mine.yaml"))
    tab.until(lambda: tab.said() == run)
    assert tab.text("#wanted") == shown(lethe.certify(run, 1e-6).epsilon)
    (tab.folder / "bad.yaml").write_text("records: 3\nrelease: never\n")
    tab.driver.find_element("id", "open").send_keys(str(tab.folder / "bad.yaml"))
    assert "release" in tab.until(lambda: tab.text("#said .refusal"))
    assert tab.said() == run


def test_a_run_with_a_long_list_is_shown_and_its_link_is_not(tab: Tab) -> None:
    tab.driver.get(tab.address)
    tab.until(lambda: tab.text("#wanted"))
    steps = 3000
    listed = [10.0 + 0.001 * step for step in range(steps)]
    run = lethe.Run(
        records=1000, batches=lethe.Cyclic(size=10), steps=steps, step_size=0.5, noise_multiplier=listed, clip_norm=1.0, release="all"
    )
    run.save(tab.folder / "long.yaml")
    tab.driver.find_element("id", "open").send_keys(str(tab.folder / "long.yaml"))
    tab.until(lambda: tab.said() == run)
    assert tab.text("#wanted") == shown(lethe.certify(run, 1e-6).epsilon)
    assert "Too long for a link" in tab.text("#said")
    assert tab.driver.current_url == tab.address  # an address of another state would be a wrong one


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_by_everybody_and_asks_nobody_else(tab: Tab, scheme: str) -> None:
    tab.look(1440, scheme)
    tab.driver.get(tab.address)
    tab.until(lambda: tab.text("#wanted"))
    for width in (1440, 360):
        tab.look(width, scheme)
        assert tab.axe() == []
        assert tab.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert tab.console() == []
    assert tab.strangers() == []
