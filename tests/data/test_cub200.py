"""CUB-200-2011 from its lists and from class folders; damaged trees say what is wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.config import find_data
from unseen.config.tables import Component
from unseen.data.benchmarks.benchmark import Counts
from unseen.data.benchmarks.official import Cub200

NUMBERS = [1, 2, 99, 100, 101, 102, 199, 200]
NAMES = {
    1: "001.Black_footed_Albatross",
    2: "002.Laysan_Albatross",
    99: "099.Ovenbird",
    100: "100.Brown_Pelican",
    101: "101.White_Pelican",
    102: "102.Western_Wood_Pewee",
    199: "199.Winter_Wren",
    200: "200.Common_Yellowthroat",
}
Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cub200, "expected", Counts(4, 12, 4, 12))


@pytest.fixture
def original(tmp_path: Path, make_image: Make) -> Path:
    """The unpacked archive: lists with ids from 1, class ids from 1."""
    root = tmp_path / "CUB_200_2011"
    images, labels, boxes, parts, classes = [], [], [], [], []
    image = 0
    for number in NUMBERS:
        classes.append(f"{number} {NAMES[number]}")
        for copy in range(3):
            image += 1
            file = f"{NAMES[number]}/{NAMES[number][4:]}_{copy:04d}_{image}.jpg"
            make_image(root / "images" / file)
            images.append(f"{image} {file}")
            labels.append(f"{image} {number}")
            boxes.append(f"{image} 1.0 2.0 5.0 6.0")
            parts.append(f"{image} {copy % 2}")
    lists = {"images": images, "image_class_labels": labels, "bounding_boxes": boxes}
    for name, lines in (lists | {"train_test_split": parts, "classes": classes}).items():
        (root / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def copied(tmp_path: Path, make_image: Make) -> Path:
    """A copy for classification: all classes in train and in test, a macOS companion beside."""
    root = tmp_path / "copy"
    for number in NUMBERS:
        make_image(root / "train" / NAMES[number] / "b.jpg")
        make_image(root / "train" / NAMES[number] / "c.jpg")
        make_image(root / "test" / NAMES[number] / "a.jpg")
        (root / "test" / NAMES[number] / "._a.jpg").write_bytes(b"\0\5\x16\7")
    (root / "README.md").write_text("a copy")
    return root


def classes_tested(dataset: Any) -> list[str]:
    return [dataset.label_names[c] for c in dataset.official_test_classes]


@pytest.mark.parametrize("above", [False, True])
def test_lists(original: Path, above: bool) -> None:
    root = original.parent if above else original
    assert find_data.data_name(root) == "cub200"
    dataset = Cub200(root)
    assert dataset.name == "cub200"
    assert len(dataset) == 24
    assert classes_tested(dataset) == [NAMES[number] for number in NUMBERS[4:]]
    assert dataset.path(3).name == "Laysan_Albatross_0000_4.jpg"
    assert dataset.labels[:4].tolist() == [0, 0, 0, 1]
    assert dataset.image(0).mode == "RGB"


@pytest.mark.parametrize("layout", ["train and test", "images", "plain"])
def test_class_folders(copied: Path, layout: str) -> None:
    if layout != "train and test":
        place = copied / "images" if layout == "images" else copied
        for part in ("train", "test"):
            for folder in (copied / part).iterdir():
                (place / folder.name).mkdir(parents=True, exist_ok=True)
                for file in folder.iterdir():
                    file.rename(place / folder.name / file.name)
            shutil.rmtree(copied / part)
    assert find_data.data_name(copied) == "cub200"
    dataset = Cub200(copied)
    assert classes_tested(dataset) == [NAMES[number] for number in NUMBERS[4:]]
    assert [dataset.path(i).name for i in range(3)] == ["a.jpg", "b.jpg", "c.jpg"]
    assert np.bincount(dataset.labels).tolist() == [3] * 8


def test_a_few_classes_are_a_plain_folder(copied: Path, make_image: Make) -> None:
    """Nobody expects the benchmark of them; a note says so, and the whole one needs none."""
    few = copied.parent / "few"
    for number in NUMBERS[:7]:
        make_image(few / NAMES[number] / "a.jpg")
    assert find_data.data_name(few) == "folder"
    part = Component(name="folder", root=str(few))
    (reason,) = find_data.data_reasons(part)
    assert str(reason) == "data.name = folder: 7 class folders, CUB-200-2011 has 8"
    assert find_data.data_reasons(Component(name="folder", root=str(copied))) == []
    make_image(few / NAMES[200] / "a.jpg")
    assert find_data.data_name(few) == "cub200"


def damage_list(root: Path, file: str, change: Callable[[str], str]) -> None:
    (root / file).write_text(change((root / file).read_text()))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("images.txt", lambda t: t[: len(t) // 2], "columns|do not name the same"),
        ("images.txt", lambda t: "", "do not name the same images"),
        ("image_class_labels.txt", lambda t: t.replace("24 200", "24 one"), "invalid literal"),
        ("image_class_labels.txt", lambda t: t + "25 200 7\n", "line 25: expected 2 columns"),
        (
            "image_class_labels.txt",
            lambda t: t.replace(" 101\n", " 100\n"),
            "found 15 images of 4",
        ),
    ],
)
def test_damaged_lists(
    original: Path, file: str, change: Callable[[str], str], message: str
) -> None:
    damage_list(original, file, change)
    with pytest.raises(ValueError, match=message) as error:
        Cub200(original)
    assert "CUB-200-2011" in str(error.value)
    assert "Caltech" in str(error.value)


def test_missing_images(original: Path, copied: Path) -> None:
    (original / "images" / NAMES[2] / "Laysan_Albatross_0000_4.jpg").unlink()
    with pytest.raises(ValueError, match=r"1 of 24 listed images are missing.*_0000_4"):
        Cub200(original)
    (copied / "train" / NAMES[200] / "b.jpg").unlink()
    with pytest.raises(ValueError, match=r"expected 12 images of 4 .* found 12 .* and 11 of 4"):
        Cub200(copied)
    shutil.rmtree(copied / "test" / NAMES[1])
    shutil.rmtree(copied / "train" / NAMES[1])
    with pytest.raises(ValueError, match="found 9 images of 3 classes"):
        Cub200(copied)
    (copied / "train" / "other").mkdir()
    with pytest.raises(ValueError, match="'other' is no class"):
        Cub200(copied)
    (original / "images.txt").unlink()
    with pytest.raises(ValueError, match=r"images\.txt"):
        Cub200(original)
    with pytest.raises(
        FileNotFoundError, match=r"no such folder.*image_class_labels\.txt.*Caltech"
    ):
        Cub200(original / "none")
