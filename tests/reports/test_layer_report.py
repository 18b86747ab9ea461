"""Layers in the report: bars, curves, disagreements, and the mark of test classes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from unseen.reports import layer_report, run_page, stored_run
from unseen.training.event_log import summed

ROWS = [
    {"layer": "stage1", "size": 64, "train": 0.3, "test": 0.2},
    {"layer": "po<ol>ed", "size": 8, "train": 0.9, "test": 0.6},
    {"layer": "embedding", "size": 4, "train": 0.95, "test": 0.5},
]


def unsummed(text: str) -> list[dict[str, Any]]:
    """The events of a log without their checksums."""
    lines = map(json.loads, text.splitlines())
    return [{key: value for key, value in line.items() if key != "crc"} for line in lines]


@pytest.fixture
def with_layers(run: Path) -> Path:
    (run / "layers.json").write_text(json.dumps({"metric": "recall@1", "layers": ROWS}))
    rng = np.random.default_rng(0)
    right = np.array([[0.0, 1.0] * 15, [1.0] * 20 + [0.0] * 10, [0.0] * 10 + [1.0] * 20])
    right[:, 4] = np.nan
    names = np.array([row["layer"] for row in ROWS])
    nearest = rng.integers(0, 30, (3, 30))
    file = run / "embeddings" / "layers.npz"
    np.savez(file, names=names, right=right, nearest=nearest, indices=np.arange(30))
    lines = unsummed((run / "events.jsonl").read_text())
    for event in lines:
        if event["event"] == "epoch":
            recall = {row["layer"]: 0.1 * event["epoch"] for row in ROWS}
            event["layers"] = {"train": recall, "validation": recall}
    (run / "events.jsonl").write_text("".join(map(summed, lines)))
    return run


def test_figures(with_layers: Path) -> None:
    read = stored_run.read(with_layers)
    bars = layer_report.bars_figure(read)
    assert bars is not None
    assert [trace["y"] for trace in bars["data"]] == [[30, 90, 95], [20, 60, 50]]
    curves = layer_report.curves_figure(read)
    assert curves is not None
    assert len(curves["data"]) == 6
    assert curves["data"][0]["x"] == [1, 2, 3]


def test_the_page_shows_them_and_escapes_names(with_layers: Path, dataset: Any) -> None:
    html = run_page.write(with_layers, dataset).read_text()
    assert 'id="layer-curves"' in html
    assert "Right at <code>po&lt;ol&gt;ed</code>, wrong at <code>embedding</code>: 9" in html
    assert "Read on test classes" in html
    assert "po<ol>ed" not in html
    assert "dotted on training classes" in html


def test_curves_on_test_classes_say_so(with_layers: Path, dataset: Any) -> None:
    event_log = with_layers / "events.jsonl"
    watched = event_log.read_text().replace('"validation": {"stage1', '"test": {"stage1')
    event_log.write_text("".join(map(summed, unsummed(watched))))
    (with_layers / "layers.json").unlink()
    html = run_page.write(with_layers, dataset).read_text()
    assert "Test classes were watched during training.<span>" in html


def test_terminal_table() -> None:
    console = Console(markup=False, width=80, record=True)
    console.print(layer_report.layer_table({"layers": ROWS}).terminal())
    text = console.export_text()
    assert "po<ol>ed" in text
    assert "95.0" in text


def test_a_run_without_layers_has_no_such_section(run: Path, dataset: Any) -> None:
    assert "section-layers" not in run_page.write(run, dataset).read_text()
