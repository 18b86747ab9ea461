"""Features of a data set: what the backbone gives and all the data set says, also after a stop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.config import build
from unseen.config import schema as configs
from unseen.config.resolve import resolve
from unseen.config.schema import Config
from unseen.core.contracts import annotations_of
from unseen.data.arrays import Arrays
from unseen.data.images import table_file
from unseen.data.table import Table
from unseen.runs import extract_features
from unseen.runs.extract_features import write_features


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Eight classes of four images, half of them tested, with everything a table can say."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {"path": [], "label": [], "split": [], "is_query": []}
    for row in range(32):
        pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{row}.png")
        columns["path"].append(f"{row}.png")
        columns["label"].append(f"c{row // 4}")
        columns["split"].append(["train", "validation", "test", "test"][row // 8])
        columns["is_query"].append(row >= 16 and row % 4 == 0)
    columns["sequence"] = [row // 2 for row in range(32)]
    columns["kind"] = ["even" if row % 2 == 0 else "odd" for row in range(32)]
    table_file.write(tmp_path / "table.csv", columns)
    return Table(tmp_path / "table.csv")


@pytest.fixture
def config(table: Table) -> Config:
    request = configs.make({"backbone": "small_conv", "workers": 0, "pooling": "max"})
    dataset: Any = table
    return resolve(request, dataset)[0]


def silent(done: int, total: int) -> None:
    pass


def test_rows_are_the_backbones_and_columns_those_of_the_data(
    tmp_path: Path, table: Table, config: Config
) -> None:
    dataset: Any = table
    out = tmp_path / "x.npz"
    size = write_features(config, dataset, out, silent)
    made = Arrays(out)
    assert Arrays.source(out) == "glyphs"
    network = build.network(config).eval()
    _, transform = build.image_transforms(config, network)
    images = torch.stack([transform(table.image(i)) for i in range(32)])
    with torch.no_grad():
        pooled = network(images).pooled.numpy()
    assert pooled.shape == (32, size)
    assert np.allclose(made.features, pooled, atol=1e-5)
    assert np.array_equal(made.labels, table.labels)
    assert made.label_names == table.label_names
    assert np.array_equal(made.official_test_classes, table.official_test_classes)  # type: ignore[arg-type]
    old, new = table.annotations, annotations_of(made)
    assert np.array_equal(old.validation_classes, new.validation_classes)  # type: ignore[arg-type]
    assert np.array_equal(old.query, new.query)  # type: ignore[arg-type]
    assert np.array_equal(old.ignore_groups, new.ignore_groups)  # type: ignore[arg-type]
    assert np.array_equal(old.labels["kind"], new.labels["kind"])
    assert [path.name for path in tmp_path.glob("x.npz*")] == ["x.npz"]  # no parts are left


def test_a_stopped_call_goes_on(
    tmp_path: Path, table: Table, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract_features, "CHUNK", 8)
    dataset: Any = table
    write_features(config, dataset, tmp_path / "whole.npz", silent)

    def stop(done: int, total: int) -> None:
        if done > 16:
            raise KeyboardInterrupt

    out = tmp_path / "x.npz"
    with pytest.raises(KeyboardInterrupt):
        write_features(config, dataset, out, stop)
    assert not out.exists()
    heard: list[int] = []

    def hear(done: int, total: int) -> None:
        heard.append(done)

    write_features(config, dataset, out, hear)
    assert min(heard) > 16  # the first two parts are not computed again
    with np.load(out) as one, np.load(tmp_path / "whole.npz") as other:
        assert np.array_equal(one["features"], other["features"])


def test_features_have_no_features(tmp_path: Path, config: Config) -> None:
    labels = np.repeat(np.arange(8), 2)
    np.savez(tmp_path / "x.npz", features=np.eye(16), labels=labels)
    dataset: Any = Arrays(tmp_path / "x.npz")
    with pytest.raises(ValueError, match="holds features already"):
        write_features(config, dataset, tmp_path / "y.npz", silent)
