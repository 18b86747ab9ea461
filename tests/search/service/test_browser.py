"""The page as a person uses it, in a real Chromium without a window.

Needs Debian's `chromium` and `chromium-driver`; skipped with a message where they are missing.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.search.service.conftest import HOSTS, calibration, serving
from unseen.search.index import Index
from unseen.search.service.app import create_app
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import Limits

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs a browser: apt-get install chromium chromium-driver",
)
Driver = Any
FOCUS = "const f = document.activeElement; return f.id || f.getAttribute('class') || f.innerText"
MOST_NODES = 300
MOST_BYTES = 200_000  # of the first view, without thumbnails
TOKEN = "a-secret-word"
VIEWS = [
    "#/",
    "#/recent",
    "#/random/3",
    "#/labels",
    "#/label/class%202",
    "#/image/8",
    "#/like/8",
    "#/like/8,9?right=10&wrong=3,4",
    "#/like/8?box=0.2,0.2,0.5,0.5&label=class+2",
    "#/like/8?where=level_1+%3D+%27class+2%27",
    "#/map?label=class+1",
    "#/selection/1-30",
    "#/changes",
    "#/no-such-view",
]
BURST_CARDS = (
    "return [...document.querySelectorAll('.card')]"
    ".filter((card) => card.scrollWidth > card.clientWidth).length"
)
DROPPED = """
    const done = arguments[arguments.length - 1];
    Promise.all(arguments[1].map((id) => fetch(`/api/images/${id}`).then((r) => r.blob()))).then((blobs) => {
      const data = new DataTransfer();
      blobs.forEach((blob, place) => data.items.add(new File([blob], `${place}.jpg`, { type: "image/jpeg" })));
      document.dispatchEvent(arguments[0] === "paste"
        ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
        : new DragEvent("drop", { dataTransfer: data, bubbles: true }));
      done();
    });
"""  # noqa: E501


@pytest.fixture(scope="module")
def browser() -> Iterator[Driver]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,1600",
    ):
        options.add_argument(word)
    short = os.environ | {"TMPDIR": "/tmp"}  # its socket has no place in a long one
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER, env=short))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: Driver, address: str) -> Iterator[Driver]:
    browser.get("about:blank")
    browser.get_log("browser")
    yield opened(browser, address, "#/")
    browser.execute_script("sessionStorage.clear()")


def opened(driver: Driver, address: str, view: str) -> Driver:
    driver.get(f"{address}/{view}")
    until(driver, is_shown)
    return driver


def is_shown(driver: Driver) -> bool:
    view = driver.find_element(By.ID, "view")
    return bool(view.find_elements(By.TAG_NAME, "h1")) and not view.get_attribute("aria-busy")


def until(driver: Driver, holds: Callable[[Driver], Any]) -> Any:
    """Cards may be replaced while they are being read: then they are read again."""
    waiting = WebDriverWait(
        driver, 30, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException]
    )
    return waiting.until(holds)


def by(driver: Driver, selector: str) -> Any:
    return driver.find_element(By.CSS_SELECTOR, selector)


def status(driver: Driver) -> str:
    return str(by(driver, "#status").text)


def heading(driver: Driver) -> str:
    return str(by(driver, "h1").text)


def cards(driver: Driver) -> list[Any]:
    return list(driver.find_elements(By.CSS_SELECTOR, ".card"))


def ids(driver: Driver) -> list[int]:
    result = "return [...document.querySelectorAll('.card')].map((card) => Number(card.dataset.id))"
    return list(driver.execute_script(result))


def labels(driver: Driver) -> list[str]:
    return [str(card.find_element(By.TAG_NAME, "b").text) for card in cards(driver)]


def bring(driver: Driver, *paths: Path) -> None:
    by(driver, "#file").send_keys("\n".join(map(str, paths)))
    until(driver, lambda d: "nearest images" in status(d))


def image(images: Path, label: int = 0) -> Path:
    return images / f"class {label}" / "0.png"


def no_errors(driver: Driver) -> None:
    messages = [e["message"] for e in driver.get_log("browser") if e["level"] == "SEVERE"]
    assert not messages, messages


def test_the_start_shows_the_index_and_its_images(page: Driver, address: str) -> None:
    metadata = by(page, "dl.metadata").text
    for fact in ("30", "tiny", "16 numbers", "float32", "exact", "Calibrated\nno"):
        assert fact in metadata
    newest = httpx.get(f"{address}/api/images?count=7").json()["images"]
    assert ids(page)[:7] == [image["id"] for image in newest]
    before = ids(page)[7:14]
    by(page, "#shuffle").click()
    until(page, lambda d: ids(d)[7:14] != before)
    assert "seed=1" in page.current_url
    page.find_element(By.LINK_TEXT, "class 4\n5 images").click()
    until(page, lambda d: heading(d) == "class 4")
    assert len(cards(page)) == 5
    no_errors(page)


def test_from_an_upload_to_a_large_image_and_on_and_back(page: Driver, images: Path) -> None:
    bring(page, image(images))
    assert len(cards(page)) == 24
    assert labels(page)[0] == "class 0"
    result = ids(page)
    by(page, "#card-1").click()
    until(page, lambda d: d.find_elements(By.ID, "like"))
    assert "Similarity" in by(page, "dl.metadata").text
    by(page, "#next").click()
    until(page, lambda d: d.current_url.endswith(f"#/image/{result[2]}") and is_shown(d))
    by(page, "#like").click()
    until(page, lambda d: d.current_url.endswith(f"#/like/{result[2]}") and is_shown(d))
    assert result[2] not in ids(page)
    for _ in range(3):
        page.back()
    until(page, lambda d: ids(d) == result)  # the upload is still known
    assert page.execute_script(FOCUS) == "card-1"  # where it was left
    no_errors(page)


def test_labels_are_found_while_one_types(page: Driver, images: Path) -> None:
    bring(page, image(images))
    field = by(page, "#only")
    field.send_keys("S 3")
    until(page, lambda d: by(d, "#only-list [role=option]").text == "class 3 (5)")
    field.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    until(page, lambda d: set(labels(d)) == {"class 3"})
    field = by(page, "#label")
    field.send_keys("5")
    until(page, lambda d: by(d, "#label-list [role=option]").text == "class 5 (5)")
    field.send_keys(Keys.ENTER)
    until(page, lambda d: heading(d) == "class 5")
    no_errors(page)


def test_a_filter_is_typed_taken_away_and_clicked(page: Driver, images: Path) -> None:
    bring(page, image(images))
    by(page, "#where").send_keys("level_1 = 'class 3'", Keys.ENTER)
    until(page, lambda d: set(labels(d)) == {"class 3"})
    by(page, ".chip").click()
    until(page, lambda d: len(set(labels(d))) > 1)
    by(page, "#where").send_keys("price <", Keys.ENTER)
    until(page, lambda d: "cannot filter by" in status(d))
    assert "422" in page.get_log("browser")[-1]["message"]  # the one that is expected
    page.get(page.current_url.partition("#")[0] + "#/image/8")
    until(page, is_shown)
    by(page, ".chip").click()
    until(page, lambda d: set(labels(d)) == {"class 1"})
    no_errors(page)


@pytest.mark.parametrize("way", ["paste", pytest.param("drop", marks=pytest.mark.slow)])
def test_several_images_dropped_or_pasted_ask_together(
    page: Driver, address: str, way: str
) -> None:
    page.execute_async_script(DROPPED, way, [7, 9])
    until(page, lambda d: "nearest images" in status(d))
    assert heading(page) == "Images like these"
    assert labels(page)[0] == "class 1"
    no_errors(page)


def test_not_this_one(page: Driver, address: str) -> None:
    first = ids(opened(page, address, "#/like/8"))
    by(page, f"[data-id='{first[0]}'] [data-call=wrong]").click()
    until(page, lambda d: ids(d) and first[0] not in ids(d))
    request = httpx.get(f"{address}/api/search?ids=8&wrong={first[0]}").json()["hits"]
    assert ids(page) == [hit["id"] for hit in request]
    by(page, f"[data-id='{first[3]}'] [data-call=right]").click()
    until(page, lambda d: "1 called right, 1 called wrong" in by(d, "#called").text)
    page.back()
    page.back()
    until(page, lambda d: ids(d) == first)
    no_errors(page)


def test_why_an_answer_is_alike(page: Driver, address: str, images: Path) -> None:
    """By an image of the index and by one that was brought; several together are not explained."""
    first = ids(opened(page, address, "#/like/8"))[0]
    by(page, f"[data-id='{first}'] [data-call=why]").click()
    until(page, lambda d: by(d, "dialog img").get_property("naturalWidth") > 600)
    said = httpx.get(f"{address}/api/why/{first}?query=8").json()["sentences"]
    assert all(sentence in by(page, "dialog").text for sentence in said)
    page.find_element(By.XPATH, "//dialog//button[text()='Close']").click()
    until(page, lambda d: not d.find_elements(By.TAG_NAME, "dialog"))
    bring(page, image(images))
    by(page, ".card [data-call=why]").click()
    until(page, lambda d: "Similarity" in by(d, "dialog").text)
    opened(page, address, "#/like/8,9")
    assert not page.find_elements(By.CSS_SELECTOR, "[data-call=why]")
    no_errors(page)


@pytest.mark.slow
def test_results_come_in_pages(page: Driver, address: str) -> None:
    whole = httpx.get(f"{address}/api/search?ids=8&k=29").json()["hits"]
    first = ids(opened(page, address, "#/like/8"))
    by(page, "#next").click()
    until(page, lambda d: len(ids(d)) == 5)
    assert first + ids(page) == [hit["id"] for hit in whole]
    assert "page=2" in page.current_url
    no_errors(page)


def test_a_region_by_pointer(page: Driver, images: Path) -> None:
    bring(page, image(images))
    canvas = by(page, "#crop")
    ActionChains(page).move_to_element_with_offset(
        canvas, -50, -50
    ).click_and_hold().move_by_offset(60, 70).release().perform()
    until(page, lambda d: d.find_elements(By.ID, "whole"))
    assert "box=0." in page.current_url
    by(page, "#whole").click()
    until(page, lambda d: not d.find_elements(By.ID, "whole"))
    assert "box" not in page.current_url
    no_errors(page)


def test_the_map_has_a_legend_and_a_lasso(page: Driver, address: str) -> None:
    opened(page, address, "#/map")
    canvas = until(page, lambda d: by(d, "#map-canvas"))
    drawn = page.execute_script(
        """
        const canvas = document.getElementById("map-canvas");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let drawn = 0;
        for (let i = 3; i < data.length; i += 4) drawn += data[i] > 0;
        return drawn;
        """
    )
    assert drawn > 200
    by(page, "[data-label='class 2']").click()
    assert "label=class+2" in page.current_url
    by(page, "#lasso").click()
    x, y = canvas.size["width"] // 2 - 3, canvas.size["height"] // 2 - 3
    ActionChains(page).move_to_element_with_offset(canvas, -x, -y).click_and_hold().move_by_offset(
        2 * x, 0
    ).move_by_offset(0, 2 * y).move_by_offset(-2 * x, 0).release().perform()
    until(page, lambda d: "30 images within the lasso" in status(d))
    by(page, "#selection-link").click()
    until(page, lambda d: heading(d) == "Selection")
    assert page.current_url.endswith("#/selection/1-30")
    by(page, "#nothing").click()
    until(page, lambda d: "Nothing is selected" in by(d, "#view").text)
    canvas = by(opened(page, address, "#/map"), "#map-canvas")
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP, "+", "x", Keys.ENTER)
    until(page, lambda d: d.find_elements(By.ID, "like"))
    assert by(page, "#selection-link").text == "Selection (1)"
    no_errors(page)


def test_what_changed_is_shown(page: Driver) -> None:
    page.find_element(By.LINK_TEXT, "What changed").click()
    until(page, lambda d: len(d.find_elements(By.CLASS_NAME, "change")) == 6)
    assert "30 images are in both" in by(page, "#changes-summary").text
    no_errors(page)


def test_with_the_keyboard_alone(page: Driver, images: Path, address: str) -> None:
    """Everything that can be done is reached by Tab, what has the focus is seen, keys go on."""
    bring(page, image(images))
    reached = []
    page.execute_script("document.getElementById('skip').focus()")
    for _ in range(14):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.append(page.execute_script(FOCUS))
        shown = page.execute_script(
            "const f = document.activeElement;"
            "const seen = f.matches('.choose input') ? f.nextElementSibling : f;"
            "return getComputedStyle(seen).outlineStyle"
        )
        assert shown != "none", reached
    assert {"file", "crop", "only", "label", "help", "card-0", "Map"} <= set(reached)
    crop = by(page, "#crop")
    crop.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ENTER)
    until(page, lambda d: d.find_elements(By.ID, "whole"))
    by(page, "#crop").send_keys(Keys.ESCAPE)
    until(page, lambda d: not d.find_elements(By.ID, "whole") and is_shown(d))
    opened(page, address, "#/like/8")
    result = ids(page)
    by(page, "#card-0").send_keys(Keys.ARROW_RIGHT)
    ActionChains(page).send_keys("x").perform()
    assert "Selection (1)" in by(page, "#selection-link").text
    ActionChains(page).send_keys("l").perform()
    until(page, lambda d: d.current_url.endswith(f"#/like/{result[1]}") and is_shown(d))
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    until(page, lambda d: ids(d) == result)
    ActionChains(page).send_keys("?").perform()
    assert "not this one" in until(page, lambda d: by(d, "#keys").text)
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    until(page, lambda d: not d.find_elements(By.ID, "keys"))
    no_errors(page)


def test_an_upload_that_is_no_image(page: Driver, tmp_path: Path) -> None:
    wrong = tmp_path / "notes.png"
    wrong.write_text("not an image")
    by(page, "#file").send_keys(str(wrong))
    until(page, lambda d: "no image" in status(d))
    assert "failed" in by(page, "#status").get_attribute("class")


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(390, False, marks=pytest.mark.slow),
        (390, True),
        pytest.param(1280, True, marks=pytest.mark.slow),
    ],
    ids=["phone", "dark phone", "dark"],
)
def test_phone_and_dark(page: Driver, address: str, width: int, dark: bool) -> None:
    with looking(page, width, dark):
        for view in ("#/", "#/like/8", "#/image/8", "#/map", "#/selection/1-9"):
            opened(page, address, view)
            wide = page.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, view  # nothing sticks out
            assert page.execute_script(BURST_CARDS) == 0, view
            page.execute_script("document.body.style.fontSize = '24px'")  # a wide font
            assert page.execute_script(BURST_CARDS) == 0, view
            camera = by(page, ".camera span").is_displayed()
            assert camera == (width < 600)
        ground = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(19, 22, 26)") == dark


class looking:  # noqa: N801  (reads as a verb)
    """`with looking(driver, 390, dark=True)`: as on a phone, or in the dark."""

    def __init__(self, driver: Driver, width: int, dark: bool) -> None:
        self.driver, self.width, self.dark = driver, width, dark

    def __enter__(self) -> None:
        self._set("light" if not self.dark else "dark", self.width < 600)
        size = {"width": self.width, "height": 844, "deviceScaleFactor": 1}
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", size | {"mobile": self.width < 600}
        )

    def __exit__(self, *_: object) -> None:
        self._set("", False)
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def _set(self, scheme: str, touch: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": touch})


def test_the_service_stops_in_the_middle(
    browser: Driver, registry: IndexRegistry, images: Path
) -> None:
    server = serving(create_app(registry, None, Limits(hosts=HOSTS, per_minute=0)))
    with server as url:
        opened(browser, url, "#/like/8")
        browser.get_log("browser")
    by(browser, "#card-0").click()
    until(browser, lambda d: "does not answer" in status(d))
    browser.get_log("browser")  # the failed request was to be expected


def test_the_interface_is_described(browser: Driver, address: str) -> None:
    browser.get(f"{address}/docs")
    until(browser, lambda d: "POST /api/search" in d.find_element(By.ID, "routes").text)
    assert "curl -F file=@image.jpg" in browser.find_element(By.ID, "routes").text
    no_errors(browser)


def violations(driver: Driver) -> list[str]:
    """What axe-core calls serious or critical, also by a rule that later versions always ask."""
    if not driver.execute_script("return 'axe' in window"):
        driver.execute_script((resources.files("axe_core_python") / "axe.min.js").read_text())
    rules = {"label-content-name-mismatch": {"enabled": True}}
    result = driver.execute_async_script(
        "axe.run(arguments[0]).then(arguments[1])", {"rules": rules}
    )
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in result["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def test_nobody_is_shut_out_of_the_results(page: Driver, address: str) -> None:
    assert not violations(opened(page, address, "#/like/8"))


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nobody_is_shut_out_of_any_view(page: Driver, address: str, width: int, dark: bool) -> None:
    with looking(page, width, dark):
        for view in VIEWS:
            assert not violations(opened(page, address, view)), view
        ActionChains(page).send_keys("?").perform()
        until(page, lambda d: d.find_elements(By.ID, "keys"))
        assert not violations(page)
        page.get(f"{address}/docs")
        until(page, lambda d: "POST" in d.find_element(By.ID, "routes").text)
        assert not violations(page)


def test_every_view_keeps_to_its_budget(page: Driver, address: str) -> None:
    """Bytes of the first view, nodes of every one; and each can be opened by its address alone."""
    sent = page.execute_script(
        "return performance.getEntries().filter((e) => e.transferSize && !/thumbnail/.test(e.name))"
        ".reduce((sum, e) => sum + e.transferSize, 0)"
    )
    assert 10_000 < sent < MOST_BYTES
    for view in VIEWS:
        nodes = opened(page, address, view).execute_script(
            "return document.querySelectorAll('*').length"
        )
        assert nodes <= MOST_NODES, (view, nodes)
    no_errors(page)


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS[:-1])
def test_an_address_opened_anew_shows_the_same(page: Driver, address: str, view: str) -> None:
    first = (heading(opened(page, address, view)), ids(page), page.current_url)
    page.get("about:blank")
    again = opened(page, address, view)
    assert (heading(again), ids(again), again.current_url) == first


@pytest.mark.slow
def test_many_images_are_labelled_taken_and_removed(
    browser: Driver, index_folder: Path, tmp_path: Path
) -> None:
    """With a token; a label that is markup stays text."""
    served = Path(shutil.copytree(index_folder, tmp_path / "my.index"))
    markup = '<img src=x onerror="window.harmed = 1">&amp;'
    limits = Limits(hosts=HOSTS, per_minute=0, token=TOKEN)
    with serving(create_app(IndexRegistry(served), None, limits)) as url:
        browser.get(f"{url}/?token={TOKEN}")
        until(browser, is_shown)
        browser.get_log("browser")
        opened(browser, url, "#/selection/3-5")
        by(browser, "#give").send_keys(markup, Keys.ENTER)
        by(browser, "#relabel").click()
        until(browser, lambda d: heading(d) == markup)
        assert "3 images moved to" in status(browser)
        assert labels(browser) == [markup] * 3
        for view in ("#/", "#/labels", "#/image/4", "#/like/4", "#/map"):
            opened(browser, url, view)
            assert markup in by(browser, "#view").text, view
        by(browser, "#label").send_keys("<img")
        until(browser, lambda d: by(d, "#label-list [role=option]").text == f"{markup} (3)")
        assert not browser.execute_script("return 'harmed' in window")
        opened(browser, url, "#/selection/3-5")
        table = browser.execute_async_script(
            "fetch(document.getElementById('csv').href).then((r) => r.text()).then(arguments[0])"
        )
        assert len(table.splitlines()) == 4
        by(browser, "#remove").click()
        by(browser, "#really").click()
        until(browser, lambda d: "3 images removed" in status(d))
        no_errors(browser)
        opened(browser, url, "#/selection/3-9")  # an address from before
        assert "not in the index any more" in by(browser, "#view").text
        by(browser, "#nothing").click()
        until(browser, lambda d: "Nothing is selected" in by(d, "#view").text)
    assert len(Index.open(served)) == 27


@pytest.mark.slow
def test_the_conclusion_and_its_reason_are_reported(
    browser: Driver, registry: IndexRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one word under the image, whole for the pointer and for a screen reader."""
    evaluated = replace(registry.snapshot, calibration=calibration(0.9, [-5.0, 10.0, 0.0]))
    monkeypatch.setattr(registry, "_snapshot", evaluated)
    with serving(create_app(registry, None, Limits(hosts=HOSTS, per_minute=0))) as url:
        opened(browser, url, "#/like/8")
        hits = httpx.get(f"{url}/api/search?ids=8").json()["hits"]
        for place, hit in enumerate(hits):
            card = by(browser, f"#card-{place}")
            assert card.text.endswith(f"{hit['conclusion']} · {hit['similarity']:.3f}")
            assert card.get_attribute("title") == hit["reason"]
            assert hit["reason"] in card.accessible_name
        assert by(browser, "#decision").text.startswith("Several labels match: class 1, ")
        nearest = calibration(hits[0]["similarity"], [-5.0, 10.0, 0.0])
        monkeypatch.setattr(registry, "_snapshot", replace(evaluated, calibration=nearest))
        opened(browser, url, "#/like/7")
        opened(browser, url, "#/like/8")
        hits = httpx.get(f"{url}/api/search?ids=8").json()["hits"]
        assert by(browser, "#decision").text == "class 1: the nearest image is a match."
        by(browser, "#card-0").click()
        until(browser, lambda d: d.find_elements(By.ID, "like"))
        assert hits[0]["reason"] in by(browser, "dl.metadata").text
        assert not violations(browser)
