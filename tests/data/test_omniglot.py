"""Omniglot from its two folders; alphabets are kept; damaged trees are named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.config import find_data
from unseen.core.contracts import annotations_of
from unseen.data.benchmarks.benchmark import Counts
from unseen.data.benchmarks.official import Omniglot

Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Omniglot, "expected", Counts(4, 8, 2, 4))


@pytest.fixture
def original(tmp_path: Path, make_image: Make) -> Path:
    parts = {"images_background": ["Greek", "Latin"], "images_evaluation": ["Glagolitic"]}
    for part, alphabets in parts.items():
        for number, alphabet in enumerate(alphabets):
            for character in (1, 2):
                for drawer in (1, 2):
                    name = f"{100 * number + character:04d}_{drawer:02d}.png"
                    place = tmp_path / part / alphabet / f"character{character:02d}"
                    make_image(place / name)
    return tmp_path


def test_folders(original: Path) -> None:
    assert find_data.data_name(original) == "omniglot"
    dataset = Omniglot(original)
    assert dataset.label_names[0] == "Glagolitic/character01"
    assert dataset.official_test_classes is not None
    assert dataset.official_test_classes.tolist() == [0, 1]
    message = annotations_of(dataset)
    assert list(message.label_names["alphabet"]) == ["Glagolitic", "Greek", "Latin"]
    assert message.labels["alphabet"].tolist() == [1] * 4 + [2] * 4 + [0] * 4
    assert message.levels == ("alphabet",)


def test_damaged(original: Path) -> None:
    next((original / "images_evaluation").rglob("*.png")).unlink()
    with pytest.raises(ValueError, match=r"expected 8 .* 4 of 2 .* found 8 .* 3 of 2.*brendenlake"):
        Omniglot(original)
    shutil.rmtree(original / "images_evaluation")
    with pytest.raises(ValueError, match="images_evaluation is missing"):
        Omniglot(original)
