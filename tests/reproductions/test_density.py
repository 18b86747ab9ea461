"""The density term with and without."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.reproductions.conftest import check_figure
from unseen.reproductions import maps


@pytest.mark.slow
def test_page(features: Path, made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "flatten", lambda rows, normalize: rows[:, :2])  # no t-SNE
    folder = made("density", features, "batch_size=20")
    message = (folder / "findings.md").read_text()
    assert "failed" not in message
    assert "| n_pair, nmi, points | +2.26 |" in message  # published
    assert "| hdc | – | 60.78 | – | 52.50 |" in message  # published only
    assert re.search(r"\| lifted_structure \| [\d.]+ \| 56.50 \|", message)  # run as well
    assert "| contrastive as a sum, density |" in message
    assert "| contrastive as a mean, density |" in message
    assert "R@128 % | published |" in message
    assert "not known class by class" not in message  # NMI has values by class
    for name in (
        "ranks_triplet",
        "weight",
        "regularizers",
        "train_test",
        "map_ten",
        "map_all",
        "map_test",
    ):
        assert (folder / "figures" / f"{name}.png").exists()


def test_images_are_drawn() -> None:
    generator = np.random.default_rng(0)
    shown = generator.integers(0, 255, (12, 20, 20, 3), dtype=np.uint8)
    data = SimpleNamespace(image=lambda i: Image.fromarray(shown[i]))
    uri, columns = maps.sheet(data, list(range(12)), maps.TILE)  # type: ignore[arg-type]
    places = generator.normal(size=(12, 2)).tolist()
    result = {"places": places, "classes": [0] * 12, "sheet": uri, "columns": columns}
    assert len(maps.test_figure("map", result).figure.axes[0].images) == 12


def test_a_map_has_its_points() -> None:
    generator = np.random.default_rng(0)
    panel = {"places": generator.normal(size=(20, 2)).tolist(), "classes": [0, 1] * 10}
    drawn = maps.classes_figure("map", {"one": panel, "two": panel, "three": panel}, 2)
    check_figure(drawn)
    shown = [ax for ax in drawn.figure.axes if ax.get_visible()]
    assert [len(ax.collections[0].get_offsets()) for ax in shown] == [20, 20, 20]
