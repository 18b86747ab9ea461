"""The density term with and without."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from unseen.reproductions import maps
from unseen.studies.findings import Section


@pytest.mark.slow
def test_page(features: Path, made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "flatten", lambda rows, normalize: rows[:, :2])  # no t-SNE
    folder = made("density", features, "batch_size=20")
    message = (folder / "findings.md").read_text()
    assert "failed" not in message
    assert "| n_pair | nmi |" in message
    assert "57.4 | 59.7 | +2.3" in message  # published
    assert "entropy < orthogonal < density" in message
    assert "contrastive, without:" in message
    assert "| hdc | – | 60.8 | – | 52.5 |" in message  # published only
    assert re.search(r"\| lifted_structure \| [\d.]+ \| 56.5 \|", message)  # run as well
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


def test_nothing_finished(features: Path, unrun: Callable[..., list[Section]]) -> None:
    sections = unrun("density", features)
    assert "contrastive – (published +3.6: inconclusive)" in sections[0].result[0]
    assert [section.title for section in sections][-1] == "Training and unseen classes"


def test_images_are_drawn() -> None:
    generator = np.random.default_rng(0)
    shown = generator.integers(0, 255, (12, 20, 20, 3), dtype=np.uint8)
    data = SimpleNamespace(image=lambda i: Image.fromarray(shown[i]))
    uri, columns = maps.sheet(data, list(range(12)), maps.TILE)  # type: ignore[arg-type]
    places = generator.normal(size=(12, 2)).tolist()
    result = {"places": places, "classes": [0] * 12, "sheet": uri, "columns": columns}
    assert len(maps.test_figure("map", result).figure.axes[0].images) == 12
