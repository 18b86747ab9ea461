"""The page as a person uses it, in a real Chromium without a window.

Needs Debian's `chromium` and `chromium-driver`; skipped with a message where they are missing.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.search.service.conftest import HOSTS, serving
from unseen.search.service.app import create_app
from unseen.search.service.guard import Limits
from unseen.search.service.library import Library

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs a browser: apt-get install chromium chromium-driver",
)
Driver = Any
FOCUS = "const f = document.activeElement; return f.id || f.getAttribute('class') || f.innerText"


def opened(*more: str) -> Driver:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        *more,
    ):
        options.add_argument(word)
    short = os.environ | {"TMPDIR": "/tmp"}  # its socket has no place in a long one
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER, env=short))


@pytest.fixture(scope="module")
def browser() -> Iterator[Driver]:
    driver = opened("--window-size=1280,1600")
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Driver, address: str) -> Driver:
    browser.get(address)
    until(browser, lambda d: "pictures" in d.find_element(By.ID, "facts").text)
    return browser


def until(driver: Driver, holds: Callable[[Driver], Any]) -> Any:
    """Cards may be replaced while they are being read: then they are read again."""
    waiting = WebDriverWait(driver, 30, ignored_exceptions=[StaleElementReferenceException])
    return waiting.until(holds)


def status(driver: Driver) -> str:
    return str(driver.find_element(By.ID, "status").text)


def cards(driver: Driver) -> list[Any]:
    return list(driver.find_elements(By.CSS_SELECTOR, "#results .card"))


def labels(driver: Driver) -> list[str]:
    return [str(card.find_element(By.TAG_NAME, "b").text) for card in cards(driver)]


def ask(driver: Driver, path: Path) -> None:
    driver.find_element(By.ID, "file").send_keys(str(path))
    until(driver, lambda d: "nearest pictures" in status(d))


def picture(pictures: Path, label: int = 0) -> Path:
    return pictures / f"class {label}" / "0.png"


def no_errors(driver: Driver) -> None:
    told = [e["message"] for e in driver.get_log("browser") if e["level"] == "SEVERE"]
    assert not told, told


def test_upload_click_through_and_filter(page: Driver, pictures: Path) -> None:
    ask(page, picture(pictures))
    assert len(cards(page)) == 24
    assert labels(page)[0] == "class 0"
    found = cards(page)[1].get_attribute("data-id")
    cards(page)[1].click()  # search on by what was found
    until(page, lambda d: found not in [card.get_attribute("data-id") for card in cards(d)])
    field = page.find_element(By.ID, "label")
    field.send_keys("class 3", Keys.ENTER)
    until(page, lambda d: set(labels(d)) == {"class 3"})
    assert len(cards(page)) == 5
    no_errors(page)


def test_paste(page: Driver, pictures: Path) -> None:
    page.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        fetch("/api/pictures/7").then((r) => r.blob()).then((blob) => {
          const data = new DataTransfer();
          data.items.add(new File([blob], "pasted.jpg", { type: "image/jpeg" }));
          const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
          document.dispatchEvent(event);
          done();
        });
        """
    )
    until(page, lambda d: "nearest pictures" in status(d))
    assert labels(page)[0] == "class 1"
    no_errors(page)


def test_a_region_by_pointer(page: Driver, pictures: Path) -> None:
    ask(page, picture(pictures))
    sent = page.execute_script("return performance.getEntriesByType('resource').length")
    canvas = page.find_element(By.ID, "crop")
    ActionChains(page).move_to_element_with_offset(
        canvas, -50, -50
    ).click_and_hold().move_by_offset(60, 70).release().perform()
    until(page, lambda d: d.find_element(By.ID, "whole").is_displayed())
    until(page, lambda d: "nearest pictures" in status(d))
    names = page.execute_script(
        "return performance.getEntriesByType('resource').slice(arguments[0]).map((e) => e.name)",
        sent,
    )
    assert any("box=0." in name for name in names)
    page.find_element(By.ID, "whole").click()
    until(page, lambda d: not d.find_element(By.ID, "whole").is_displayed())
    no_errors(page)


def test_the_map_is_drawn_and_clicked(page: Driver) -> None:
    canvas = page.find_element(By.ID, "map-canvas")
    page.execute_script("document.getElementById('map').scrollIntoView()")
    until(page, lambda d: canvas.is_displayed())
    colours = page.execute_script(
        """
        const canvas = document.getElementById("map-canvas");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let drawn = 0;
        for (let i = 3; i < data.length; i += 4) drawn += data[i] > 0;
        return drawn;
        """
    )
    assert colours > 200
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP, "+", Keys.ENTER)
    until(page, lambda d: "nearest pictures" in status(d))
    no_errors(page)


def test_what_changed_is_shown(page: Driver) -> None:
    until(page, lambda d: d.find_element(By.ID, "changes-link").is_displayed())
    until(page, lambda d: len(d.find_elements(By.CLASS_NAME, "change")) == 12)
    assert "30 pictures are in both" in page.find_element(By.ID, "changes-summary").text
    no_errors(page)


def test_with_the_keyboard_alone(page: Driver, pictures: Path) -> None:
    """Everything that can be done is reached by Tab, and what has the focus is seen."""
    ask(page, picture(pictures))
    reached = []
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.HOME)
    page.execute_script("document.activeElement.blur()")
    for _ in range(14):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.append(page.execute_script(FOCUS))
    assert {"file", "crop", "label", "count", "Map"} <= set(reached)
    assert any("card" in name for name in reached)
    crop = page.find_element(By.ID, "crop")
    crop.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ENTER)
    until(page, lambda d: d.find_element(By.ID, "whole").is_displayed())
    crop.send_keys(Keys.ESCAPE)
    until(page, lambda d: not d.find_element(By.ID, "whole").is_displayed())
    before = until(page, lambda d: cards(d)[2].get_attribute("data-id"))
    until(page, lambda d: not cards(d)[2].send_keys(Keys.ENTER))
    until(page, lambda d: cards(d) and cards(d)[2].get_attribute("data-id") != before)
    no_errors(page)


def test_an_upload_that_is_no_picture(page: Driver, tmp_path: Path) -> None:
    wrong = tmp_path / "notes.png"
    wrong.write_text("not a picture")
    page.find_element(By.ID, "file").send_keys(str(wrong))
    until(page, lambda d: "no picture" in status(d))
    assert "failed" in page.find_element(By.ID, "status").get_attribute("class")
    assert not cards(page)


@pytest.mark.parametrize(
    ("width", "dark"),
    [(390, False), (390, True), (1280, True)],
    ids=["phone", "dark phone", "dark"],
)
def test_phone_and_dark(address: str, pictures: Path, width: int, dark: bool) -> None:
    more = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
    driver = opened("--window-size=1280,900", *more)
    try:
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        if dark:
            feature = {"name": "prefers-color-scheme", "value": "dark"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        driver.get(address)
        ask(driver, picture(pictures))
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width  # nothing sticks out
        ground = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(19, 22, 26)") == dark
    finally:
        driver.quit()


def test_the_service_stops_in_the_middle(browser: Driver, library: Library, pictures: Path) -> None:
    server = serving(create_app(library, None, Limits(hosts=HOSTS, per_minute=0)))
    with server as url:
        browser.get(url)
        ask(browser, picture(pictures))
        browser.get_log("browser")
    cards(browser)[0].click()
    until(browser, lambda d: "does not answer" in status(d))
    browser.get_log("browser")  # the failed request was to be expected


def test_the_interface_is_described(browser: Driver, address: str) -> None:
    browser.get(f"{address}/docs")
    until(browser, lambda d: "POST /api/search" in d.find_element(By.ID, "routes").text)
    assert "curl" in browser.find_element(By.ID, "routes").text
    no_errors(browser)
