"""A real browser without a window, for what people look at: headless Chromium, driven by selenium.

with chromium() as page:
    page.open(path)
    page.look(360, "dark")
    assert page.complaints() == []
"""

import base64
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pytest
from repository import ROOT

Scheme = Literal["light", "dark"]
WIDTHS = (360, 1440)
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
_HEIGHT = 900
_PICTURES = ROOT / "docs" / "pictures"


@dataclass
class Page:
    """One tab.

    Args:
        driver: selenium's own.
    """

    driver: Any
    width: int = 1440

    def open(self, address: str | Path) -> None:
        """Show a file or an address, and wait until it is loaded."""
        self.driver.get(address.resolve().as_uri() if isinstance(address, Path) else address)

    def look(self, width: int, scheme: Scheme = "light", *, media: Literal["screen", "print"] = "screen") -> None:
        """As a screen of this width in CSS pixels, in light or dark, or as paper."""
        self.width = width
        shape = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shape)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [feature]})

    def unfold(self) -> None:
        """Open everything that is folded away."""
        self.driver.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    def complaints(self) -> list[str]:
        """What the console said since it was last asked, warnings and errors."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since it was last asked; data: is no request."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
        return [address for address in sent if not address.startswith("data:")]

    def overflow(self) -> int:
        """How many pixels the page is wider than its screen."""
        return self.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")

    def violations(self, *, without: Sequence[str] = ()) -> list[str]:
        """The rules of WCAG 2.1 AA and of good practice that axe finds broken, each with where; elements `without` are left out."""
        axe = pytest.importorskip("axe_selenium_python")
        library = Path(axe.__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
        self.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        self.driver.execute_script(library.read_text())
        context = "arguments[0].length ? {exclude: arguments[0]} : document"
        script = f"const done = arguments[1]; axe.run({context}).then(done);"
        found = self.driver.execute_async_script(script, [[selector] for selector in without])
        return [f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes'][:4]]}" for one in found["violations"]]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page, or of what the screen shows of it."""
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": whole, **({"clip": self._clip()} if whole else {})}
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def shown_everywhere(self, folder: Path, name: str) -> None:
        """Screenshots wide and narrow, light and dark: none is wider than its screen, and the dark ones are dark."""
        image = pytest.importorskip("matplotlib.image")
        for width, scheme in product((1280, 390), SCHEMES):
            self.look(width, scheme)
            file = folder / f"{name}_{width}_{scheme}.png"
            self.screenshot(file, whole=False)
            pixels = image.imread(file)
            assert pixels.shape[1] == width
            assert self.overflow() <= 0, file
            assert (float(median(pixels[:, :, 0].ravel().tolist())) < 0.35) == (scheme == "dark"), file

    def kept(self, name: str) -> None:
        """Keep what the screen shows as docs/pictures/NAME.png, if that was asked for: `make pictures`."""
        if os.environ.get("LETHE_PICTURES"):
            self.driver.execute_script("window.scrollTo({top: 0, behavior: 'instant'})")
            self.screenshot(_PICTURES / f"{name}.png", whole=False)

    def _clip(self) -> dict[str, float]:
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        return {"x": 0, "y": 0, "width": self.width, "height": height, "scale": 1}


@contextmanager
def chromium() -> Iterator[Page]:
    """A browser of its own; the test is skipped, with the reason, where there is none."""
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no Chromium with its chromedriver is installed")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        opened.set_script_timeout(180)
        yield Page(opened)
    finally:
        opened.quit()
