"""The map keeps clusters together, samples evenly, and every point finds its thumbnail."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.reports import embedding_map, queries, stored_run


def test_small_sets_are_shown_whole() -> None:
    assert embedding_map.sample(np.arange(7), most=7).tolist() == list(range(7))


def test_sample_takes_equally_many_of_each_class() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 50))
    chosen = embedding_map.sample(labels, most=100)
    assert len(set(chosen.tolist())) == 100
    assert np.bincount(labels[chosen]).tolist() == [10] * 10


def test_with_many_classes_some_are_shown_with_four_items() -> None:
    labels = np.repeat(np.arange(100), 6)
    shown = labels[embedding_map.sample(labels, most=80)]
    assert np.unique(shown, return_counts=True)[1].tolist() == [4] * 20


def test_clusters_stay_together() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 15)
    embeddings = rng.normal(size=(4, 16))[labels] + 0.1 * rng.normal(size=(60, 16))
    place = embedding_map.flatten(embeddings.astype(np.float32), normalize=True)
    gaps = ((place[:, None] - place[None]) ** 2).sum(axis=2) + 1e9 * np.eye(60)
    assert (labels[gaps.argmin(axis=1)] == labels).all()


@pytest.mark.parametrize(
    "embeddings", [np.ones((12, 3)), np.zeros((12, 3)), np.arange(12)[:, None]]
)
def test_poor_embeddings_still_have_a_map(embeddings: np.ndarray) -> None:
    assert np.isfinite(embedding_map.flatten(embeddings.astype(np.float32), normalize=False)).all()


def test_known_colors_and_distinct_ones() -> None:
    assert embedding_map._oklch(1.0, 0.0, 0.0) == "#ffffff"
    assert embedding_map._oklch(0.0, 0.0, 0.0) == "#000000"
    assert embedding_map._oklch(0.62796, 0.25768, 0.51026) == "#ff0000"  # sRGB red in OKLCH
    assert len(set(embedding_map.class_colors(100))) == 100


def test_data_of_each_point_belong_together(run: Path, dataset: Any) -> None:
    test = stored_run.read(run).test
    assert test is not None
    result = queries.find(test, normalize=True)
    data = embedding_map.map_data(test, result, dataset, normalize=True)
    assert data is not None
    image = base64.b64decode(data["sheet"].split(",")[1])
    sheet = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
    side = embedding_map.TILE
    assert sheet.shape == (data["rows"] * side, data["columns"] * side, 3)
    for item, label in enumerate(dataset.labels):
        assert data["names"][data["classOf"][item]] == dataset.label_names[label]
        assert bool(data["right"][item]) == (data["nearest"][item] == dataset.label_names[label])
        row, column = divmod(item, data["columns"])
        middle = sheet[row * side + side // 2, column * side + side // 2]
        assert abs(int(middle[0]) - 40 * int(label)) < 16  # the red of the item's own image


def test_too_few_items_have_no_map(run: Path, dataset: Any) -> None:
    test = stored_run.read(run).test
    assert test is not None
    few = stored_run.TestEmbeddings(test.embeddings[:9], test.labels[:9], test.indices[:9])
    result = queries.find(few, normalize=True)
    assert embedding_map.map_data(few, result, dataset, normalize=True) is None
