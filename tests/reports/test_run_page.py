"""The page holds the numbers, loads nothing, escapes everything, and comes out the same twice."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from tests.search.service.test_browser import (
    CHROMIUM,
    DRIVER,
    browser,  # noqa: F401 - a fixture
    until,
)
from unseen.data.images.decode import UnreadableImageError
from unseen.reports import run_page
from unseen.reports.figures import recall_figure
from unseen.reports.sections import SEARCH_PAGE
from unseen.reports.stored_run import read
from unseen.training.event_log import summed

VOID = {"meta", "img", "input", "link", "br", "hr"}


class Page(HTMLParser):
    """Text, attributes and scripts of a page; a tag that closes none raises."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: dict[str, str] = {}
        self.words: list[str] = []
        self.script = ""
        self.feed(html)
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        self.script = dict(attrs).get("id") or "main"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self.script] = data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    def values(self, key: str) -> list[str]:
        return [value for _, name, value in self.attributes if name == key]


def written(run: Path, dataset: Any) -> Page:
    return Page(run_page.write(run, dataset).read_text(encoding="utf-8"))


def test_says_the_result(run: Path, dataset: Any) -> None:
    text = written(run, dataset).text
    said = "Finds the right class first in 81.2 % of queries (mAP@R 85.6 %), on 6 classes"
    assert said in text.replace("\u00a0", " ")
    assert "pixel baseline: 43.2 %" in text
    for number in ("81.2 79.2–82.2", "34.6", "86.7", "71.2", "80.7"):  # 80.7: class average
        assert number in text
    for fact in ("margin (beta 1.25)", "the best on validation classes (recall@1 77.7 %)"):
        assert fact in text
    assert "95 % interval over queries" in text
    for fact in ("unseen train 'a<b'", "2025-01-02T03:04:05", "final score", "5b117", "abc123"):
        assert fact in text


def test_a_result_below_its_start_is_the_headline(
    run: Path, dataset: Any, result: dict[str, Any]
) -> None:
    start = {"title": "ImageNet weights, head at its start", "kind": "pretrained"}
    gain = {"recall@1": {"before": 0.908, "after": 0.8, "low": -0.15, "high": -0.06}}
    (run / "result.json").write_text(json.dumps(result | {"start": start, "gain": gain}))
    html = run_page.write(run, dataset).read_text()
    assert '<h1><span class="warning">Training made it worse.</span>' in html
    assert "<p>recall@1 80.0% after training" in html, "the numbers are no headline"
    assert "What to try: A lower lr" in html
    assert "ImageNet weights, head at its start" in html


def test_how_far_training_went_stands_on_the_page(
    run: Path, dataset: Any, result: dict[str, Any]
) -> None:
    far = {"stage": "head", "epochs": 7, "planned": 60, "image_size": 128, "minutes": 2.0}
    (run / "result.json").write_text(json.dumps(result | {"extent": far}))
    text = written(run, dataset).text
    for fact in ("selected stage head", "epochs trained 7 of 60 planned", "image size 128 px"):
        assert fact in text


def test_copies_across_the_split_are_reported_before_the_numbers(
    run: Path, dataset: Any, result: dict[str, Any]
) -> None:
    assert "Duplicates" not in written(run, dataset).text
    result["data"]["duplicates across the split"] = 3
    (run / "result.json").write_text(json.dumps(result))
    assert "Duplicates across the split: 3." in written(run, dataset).text


def test_rows_that_need_no_training_are_explained(run: Path, dataset: Any) -> None:
    assert "the images themselves, scaled down" in written(run, dataset).text


def test_the_curve_begins_with_the_start(run: Path) -> None:
    event = {"event": "start", "epoch": -1, "step": 0, "validation": {"recall@1": 0.25}}
    event_log = run / "events.jsonl"
    event_log.write_text(summed(event) + event_log.read_text())
    figure = recall_figure(read(run))
    assert figure is not None
    (validation,) = [trace for trace in figure["data"] if "validation" in trace["name"]]
    assert (validation["x"][0], validation["y"][0]) == (0, 25.0)


def test_glyphs_are_called_characters(run: Path, dataset: Any, result: dict[str, Any]) -> None:
    result["data"]["name"] = "glyphs"
    (run / "result.json").write_text(json.dumps(result))
    assert "the right character first in 81.2 %" in written(run, dataset).text


def test_loads_nothing(run: Path, dataset: Any) -> None:
    made = written(run, dataset)
    loads = made.values("src") + made.values("href") + made.values("srcset")
    loads.remove(SEARCH_PAGE)  # a link to follow, nothing that is loaded
    assert {value.split(":")[0] if ":" in value else value[0] for value in loads} == {"data", "#"}
    assert "default-src 'none'" in " ".join(made.values("content"))
    styles = (run / "report" / "index.html").read_text(encoding="utf-8").split("</style>")[0]
    assert "url(" not in styles
    assert "@import" not in styles


def test_leads_to_the_search_page(run: Path, dataset: Any) -> None:
    made = written(run, dataset)
    assert "unseen index build . path/to/images" in made.text
    assert SEARCH_PAGE in made.values("href")


def test_plotly_is_inside_once(run: Path, dataset: Any) -> None:
    packed = written(run, dataset).scripts["plotly"]
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()


def test_user_text_is_escaped(run: Path, dataset: Any, result: dict[str, Any]) -> None:
    """In labels, in the name of the run, of its data and of a row; nothing is computed."""
    hostile, name = dataset.label_names[0], "<script>{{ 7*7 }}"
    result["data"]["name"] = result["split"]["hash"] = hostile
    result["scores"][hostile] = result["scores"]["pixels"]
    (run / "result.json").write_text(json.dumps(result))
    run = run.rename(run.with_name(name))
    made = written(run, dataset)
    html = (run / "report" / "index.html").read_text(encoding="utf-8")
    assert hostile not in html
    assert name not in html
    assert f"run {name} · data {hostile}" in made.text
    assert f"query: {hostile}" in made.values("alt") or f"right: {hostile}" in made.values("alt")
    assert hostile in json.loads(made.scripts["figure-data"])["map"]["names"]
    assert set(made.scripts) == {"figure-data", "plotly", "main"}


def test_every_figure_has_its_place_and_every_label_its_target(run: Path, dataset: Any) -> None:
    made = written(run, dataset)
    figures = json.loads(made.scripts["figure-data"])
    identities = made.values("id")
    assert len(identities) == len(set(identities))
    assert set(figures) == {"loss", "recall", "map"} <= set(identities)
    targets = made.values("for") + [h.removeprefix("#") for h in made.values("href")]
    targets += made.values("aria-labelledby")
    assert set(targets) - {SEARCH_PAGE} <= set(identities)
    looked_up = re.findall(r'getElementById\("([^"]+)"\)', made.scripts["main"])
    assert set(looked_up) <= set(identities)


def test_images_bear_conclusion_and_words(run: Path, dataset: Any) -> None:
    made = written(run, dataset)
    alts = [alt.split(":")[0] for alt in made.values("alt")]
    assert len(alts) == sum(tag == "img" for tag, key, _ in made.attributes if key == "src")
    for word, sign in (("right", "✓"), ("wrong", "✗")):
        assert alts.count(word) == made.values("class").count(f"tile {word}") > 0
        assert len(re.findall(rf"{sign} \d\.\d\d", made.text)) == alts.count(word)


def test_a_image_that_cannot_be_read_any_more(
    run: Path, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is written all the same, with as many images."""

    def broken(index: int) -> Any:
        raise UnreadableImageError(f"{index}.jpg", "the file ends too early")

    before = written(run, dataset)
    monkeypatch.setattr(dataset, "image", broken)
    assert written(run, dataset).values("alt") == before.values("alt")


def test_same_run_same_bytes(run: Path, dataset: Any) -> None:
    first = run_page.write(run, dataset).read_bytes()
    assert run_page.write(run, dataset).read_bytes() == first
    assert str(run).encode() not in first
    assert [file.name for file in (run / "report").iterdir()] == ["index.html"]


def test_without_result_says_what_is_missing(run: Path, dataset: Any) -> None:
    (run / "result.json").unlink()
    (run / "embeddings" / "test.npz").unlink()
    with (run / "events.jsonl").open("a") as event_log:
        event_log.write('{"event": "step", "ste')  # broken off while writing
    made = written(run, dataset)
    assert "Not finished (after 3 of 3 epochs): no result.json yet" in made.text
    assert set(made.values("id")) >= {"loss", "recall"}
    assert "kept" not in made.scripts["figure-data"]


def test_only_a_config(run: Path, dataset: Any) -> None:
    for name in ("result.json", "events.jsonl", "manifest.json", "embeddings/test.npz"):
        (run / name).unlink()
    made = written(run, dataset)
    assert "The event log holds no step yet." in made.text
    assert made.scripts == {}


def test_embeddings_that_are_not_finite(run: Path, dataset: Any) -> None:
    labels = dataset.labels
    bad = np.full((len(labels), 4), np.nan, dtype=np.float32)
    np.savez(run / "embeddings/test.npz", embeddings=bad, labels=labels, indices=labels)
    text = written(run, dataset).text
    assert "The embeddings are not finite numbers" in text
    assert "81.2 %" in text


def test_watching_and_choosing_on_test_is_marked(run: Path, dataset: Any, result: Any) -> None:
    result["selection"]["on"] = "test"
    (run / "result.json").write_text(json.dumps(result))
    with (run / "events.jsonl").open("a") as event_log:
        scores = {"train": {"recall@1": 0.9}, "test": {"recall@1": 0.5}}
        pace = {"lr": 0.1, "seconds": 1.0, "images_per_second": 9.0}
        event_log.write(summed({"event": "epoch", "epoch": 3, "step": 16} | scores | pace))
    made = written(run, dataset)
    assert "Chosen on test classes" in made.text
    assert "Test classes were watched during training." in made.text
    names = [t["name"] for t in json.loads(made.scripts["figure-data"])["recall"]["data"]]
    assert names[-1] == "test classes, watched in training"


def test_progress_hears_the_stages(run: Path, dataset: Any) -> None:
    heard: list[str] = []
    run_page.write(run, dataset, heard.append)
    assert heard[0] == "reading the run"
    assert heard[-1] == "writing the page"


def test_no_run_there(tmp_path: Path, dataset: Any) -> None:
    with pytest.raises(FileNotFoundError, match="no run folder"):
        run_page.write(tmp_path / "nothing", dataset)
    with pytest.raises(FileNotFoundError, match="is no run"):
        run_page.write(tmp_path, dataset)


@pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs a browser: apt-get install chromium chromium-driver",
)
def test_curves_and_map_are_drawn_in_a_browser(run: Path, dataset: Any, browser: Any) -> None:  # noqa: F811
    browser.get(run_page.write(run, dataset).resolve().as_uri())
    until(
        browser,
        lambda driver: driver.execute_script("return document.documentElement.dataset.drawn"),
    )
    marks = "return document.querySelectorAll(arguments[0]).length"
    assert browser.execute_script(marks, "#map .scatterlayer .point") > 0
    assert browser.execute_script(marks, ".plot .scatterlayer .lines path") > 0
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
