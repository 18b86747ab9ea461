"""A finished run of a tiny data set, made without training: clusters on a sphere, drawn squares."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.training.event_log import summed
from unseen.training.manifest import VERSION

NUM_CLASSES, PER_CLASS = 6, 5
HOSTILE = '<script>alert("{{ 7*7 }}")</script>'


class Squares:
    """Images of one colour per class. One class bears a hostile name."""

    name = "squares"
    official_test_classes = None

    def __init__(self) -> None:
        self.labels = np.repeat(np.arange(NUM_CLASSES), PER_CLASS)
        self.label_names: Sequence[str] = [HOSTILE, "b & b", "ג", *"def"]

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        return Image.new("RGB", (20, 14), (40 * int(self.labels[index]), index, 99))

    def describe(self) -> dict[str, Any]:
        return {"items": len(self)}

    def fingerprint(self) -> str:
        return "abc123"


def scores(base: float) -> dict[str, Any]:
    names = ("recall@1", "recall@2", "recall@4", "recall@8", "map_at_r", "r_precision")
    values = {name: base + 0.011 * place for place, name in enumerate(names)}
    metrics: dict[str, Any] = {
        name: {"value": v, "low": v - 0.02, "high": v + 0.01, "class_average": v - 0.005}
        for name, v in values.items()
    }
    metrics["nmi"] = {"value": base - 0.1, "low": None, "high": None}
    return {"metrics": metrics, "counts": {"queries": 30, "gallery": 30, "lone_queries": 0}}


@pytest.fixture
def result() -> dict[str, Any]:
    return {
        "config_hash": "c0ffee",
        "seed": 3,
        "data": {"name": "squares", "items": 90, "classes": 18, "fingerprint": "abc123"},
        "split": {"hash": "5b117", "train_classes": 9, "validation_classes": 3, "test_classes": 6},
        "selection": {
            "on": "validation",
            "metric": "recall@1",
            "epoch": 1,
            "value": 0.777,
            "classes": 3,
        },
        "scores": {
            "trained": scores(0.8123),
            "untrained": scores(0.3456),
            "pixels": scores(0.4321),
        },
    }


@pytest.fixture
def dataset() -> Squares:
    return Squares()


@pytest.fixture
def run(tmp_path: Path, dataset: Squares, result: dict[str, Any]) -> Path:
    folder = tmp_path / "my & run"
    (folder / "embeddings").mkdir(parents=True)
    (folder / "config.toml").write_text(
        'seed = 3\nepochs = 3\nbackbone = "small"\n[loss]\nname = "margin"\nbeta = 1.25\n'
    )
    read = {"time": "2025-01-02T03:04:05", "purpose": "final score", "config_hash": "c0ffee"}
    manifest = {"unseen": "0.1.0", "command": "unseen train 'a<b'", "test_reads": [read]}
    manifest["version"] = VERSION
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "events.jsonl").write_text("".join(map(summed, event_log())))
    (folder / "result.json").write_text(json.dumps(result))
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(NUM_CLASSES, 8))[dataset.labels]
    embeddings = embeddings + 0.7 * rng.normal(size=embeddings.shape)
    np.savez(
        folder / "embeddings" / "test.npz",
        embeddings=embeddings.astype(np.float32),
        labels=dataset.labels,
        indices=np.arange(len(dataset)),
    )
    return folder


def event_log() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for epoch in range(3):
        for step in range(4 * epoch, 4 * epoch + 4):
            terms = {"total": 1 / (step + 1), "loss": 1 / (step + 1)}
            place = {"event": "step", "step": step, "epoch": epoch}
            events.append(place | {"terms": terms, "images_per_second": 90.0})
        recall = {"train": {"recall@1": 0.7 + epoch / 10}, "validation": {"recall@1": 0.6}}
        pace = {"lr": 1e-4, "seconds": 1.5, "images_per_second": 90.0}
        events.append({"event": "epoch", "epoch": epoch, "step": 4 * epoch + 4} | recall | pace)
    return events
