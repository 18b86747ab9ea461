"""`unseen data noise`: lists, and a page that is decided on in a real Chromium without a window."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_data import unseen
from unseen.config import schema as configs
from unseen.data.images import table_file
from unseen.data.table import Table
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate
from unseen.training.run_folder import RunFolder

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ODD = '=a "quoted", name'  # a class, in a table that a spreadsheet may open


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of images in eight classes, of which two have the wrong label."""
    folder, rng = tmp_path_factory.mktemp("noise"), np.random.default_rng(0)
    names = np.array(["ash", "birch", "cedar", "elm", "fir", "oak", "yew", ODD])
    true = np.repeat(np.arange(8), 8)
    rows = np.eye(8, 9)[true] + 0.1 * rng.normal(size=(64, 9))
    files = [folder / f"{item:02d}.png" for item in range(64)]
    for item, file in enumerate(files):
        grey = 28 * int(true[item]) + rng.integers(0, 30, (24, 32))
        Image.fromarray(grey.astype(np.uint8)).save(file)
    labels = true.copy()
    labels[[5, 34]] = [1, 0]
    metadata = {"features": rows.astype(np.float32), "labels": labels, "label_names": names}
    split = np.where(labels < 4, "train", "test")
    np.savez(folder / "plain.npz", **metadata, split=split)
    np.savez(folder / "trees.npz", **metadata, split=split, files=np.array([str(f) for f in files]))
    return folder


def test_features_without_images_are_listed(
    capsys: pytest.CaptureFixture[str], features: Path, tmp_path: Path
) -> None:
    code, text, _ = unseen(
        capsys, "data", "noise", str(features / "plain.npz"), "--out", str(tmp_path)
    )
    assert code == 0
    assert "another class is likelier for 2 of 64 items" in text
    result = table_file.read(tmp_path / "label_issues.csv")
    assert len(result["item"]) == 6  # a tenth
    first = [(result["label"][row], result["suggested"][row]) for row in (0, 1)]
    assert sorted(first) == [("ash", "fir"), ("birch", "ash")]
    assert float(result["issue_score"][1]) > 0.5 > float(result["issue_score"][2])
    assert not (tmp_path / "index.html").exists()


def test_a_run_leaves_its_test_classes_alone_unless_requested(
    capsys: pytest.CaptureFixture[str], features: Path, tmp_path: Path
) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "out")
    values = {"data": {"name": "arrays", "root": str(features / "plain.npz")}}
    words = ["epochs=1", "embedding_size=4", "batch_size=8", 'metrics=["recall@1"]']
    train_and_evaluate(prepare(configs.make(configs.override(values, words))), Path(run), "test")
    for more, items, reads in ((), 33, 1), (("--test",), 64, 2):
        code, text, _ = unseen(capsys, "data", "noise", run, "--out", out, *more)
        assert code == 0
        assert f"of {items} items" in text
        assert ("--test looks at them too" in text) == (not more)
        assert len(RunFolder(Path(run)).manifest().test_reads) == reads


def test_mistakes_are_reported_in_a_line(
    capsys: pytest.CaptureFixture[str], features: Path, tmp_path: Path
) -> None:
    data, out = str(features / "plain.npz"), str(tmp_path)
    assert "no such file" in unseen(capsys, "data", "noise", "nowhere", "--out", out)[2]
    assert "for runs" in unseen(capsys, "data", "noise", data, "--out", out, "--test")[2]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    if not (CHROMIUM and DRIVER):
        pytest.skip("needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{word}")
    options.add_argument("--window-size=1280,1200")
    folder = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    short = os.environ | {"TMPDIR": "/tmp"}  # its socket has no place in a long one
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER, env=short))
    yield driver, folder
    driver.quit()


def downloaded(driver: Any, folder: Path) -> Path:
    from selenium.webdriver.support.ui import WebDriverWait

    waiting = WebDriverWait(driver, 30, poll_frequency=0.05)
    file: Path = waiting.until(lambda _: next(iter(folder.glob("*.csv")), None))
    return file


def test_decided_by_key_downloaded_and_read_as_a_table(
    capsys: pytest.CaptureFixture[str], features: Path, tmp_path: Path, browser: Any
) -> None:
    driver, folder = browser
    words = ("--fraction", "0.14", "--out", str(tmp_path))
    assert unseen(capsys, "data", "noise", str(features / "trees.npz"), *words)[0] == 0
    listed = table_file.read(tmp_path / "label_issues.csv")
    driver.get((tmp_path / "index.html").as_uri())
    title = driver.find_element("tag name", "h1").text
    assert title == "Another class is likelier for 2 of 64 items"
    page = driver.find_element("tag name", "body")
    for key in "1dc":
        page.send_keys(key)
    driver.switch_to.active_element.send_keys(ODD + "\ue007")  # the c asks for a class; Enter
    driver.find_element("tag name", "body").send_keys("k")
    driver.refresh()  # decisions stay
    message = driver.find_element("id", "progress").text
    assert message == "4 of 9 decided: 1 kept, 2 moved, 1 dropped"
    driver.find_element("tag name", "body").send_keys("s")
    result = Table(downloaded(driver, folder))
    assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    names = {result.path(i).name: result.label_names[result.labels[i]] for i in range(len(result))}
    expected = dict(zip(*_labels(features), strict=True))
    order = [Path(item).name for item in listed["item"]]
    expected[order[0]] = listed["suggested"][0]
    del expected[order[1]]
    expected[order[2]] = ODD
    assert names == expected
    assert result.official_test_classes is not None
    tested = {result.label_names[c] for c in result.official_test_classes}
    assert tested == {"fir", "oak", "yew", ODD}  # who moved is where its class is


def _labels(features: Path) -> tuple[list[str], list[str]]:
    with np.load(features / "trees.npz") as held:
        names = [Path(file).name for file in held["files"]]
        return names, [str(held["label_names"][label]) for label in held["labels"]]
