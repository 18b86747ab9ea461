"""Cars196 from both official layouts and from class folders; damaged trees say what is wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from unseen.config import find_data
from unseen.data.base import INCOMPLETE
from unseen.data.benchmarks.benchmark import Counts
from unseen.data.benchmarks.official import Cars196

NUMBERS = [1, 2, 98, 99, 100, 196]
NAMES = [f"Maker Model {number}" for number in range(1, 197)]
BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cars196, "expected", Counts(3, 6, 3, 6))


def struct(rows: list[dict[str, Any]]) -> Any:
    """A MATLAB struct array [1, n], its fields in the order of the rows' keys."""
    made = np.empty((1, len(rows)), dtype=[(name, object) for name in rows[0]])
    for place, row in enumerate(rows):
        for name, value in row.items():
            made[0, place][name] = value
    return made


def cells(words: list[str]) -> Any:
    made = np.empty((1, len(words)), dtype=object)
    made[0, :] = words
    return made


def boxes() -> dict[str, int]:
    return dict(zip(BOX, (1, 2, 9, 8), strict=True))


@pytest.fixture
def older(tmp_path: Path, make_image: Make) -> Path:
    """car_ims and cars_annos.mat: relative path, box, class, test; images in class order."""
    rows = []
    for place, number in enumerate(np.repeat(NUMBERS, 2), start=1):
        file = f"car_ims/{place:06d}.jpg"
        make_image(tmp_path / file)
        first = {"relative_im_path": file} | boxes()
        rows.append(first | {"class": np.uint8(number), "test": np.uint8(place % 2)})
    held = {"annotations": struct(rows), "class_names": cells(NAMES)}
    savemat(tmp_path / "cars_annos.mat", held)
    return tmp_path


@pytest.fixture
def devkit(tmp_path: Path, make_image: Make) -> Path:
    """cars_train, cars_test and the devkit: file names begin anew in each; classes are mixed."""
    (tmp_path / "devkit").mkdir()
    for part, name in (("train", "cars_train_annos"), ("test", "cars_test_annos_withlabels")):
        rows = []
        for place, number in enumerate(reversed(NUMBERS), start=1):
            make_image(tmp_path / f"cars_{part}" / f"{place:05d}.jpg")
            rows.append(boxes() | {"class": np.uint8(number), "fname": f"{place:05d}.jpg"})
        savemat(tmp_path / "devkit" / f"{name}.mat", {"annotations": struct(rows)})
    savemat(tmp_path / "devkit" / "cars_meta.mat", {"class_names": cells(NAMES)})
    return tmp_path


@pytest.fixture
def copied(tmp_path: Path, make_image: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All 196 class folders in train and in test, as copies for classification have them."""
    monkeypatch.setattr(Cars196, "expected", Counts(98, 196, 98, 196))
    before = [f"Audi {place:03d} Sedan 2012" for place in range(96)]
    after = [f"FIAT {place:03d} Abarth 2012" for place in range(98)]
    named = ["AM General Hummer SUV 2000", *before, "Eagle Talon Hatchback 1998", *after]
    for name in named:
        make_image(tmp_path / "train" / name / "00001.jpg")
        make_image(tmp_path / "test" / name / "00002.jpg")
    return tmp_path


def check(dataset: Cars196) -> None:
    assert dataset.label_names == [NAMES[number - 1] for number in NUMBERS]
    assert dataset.official_test_classes is not None
    assert dataset.official_test_classes.tolist() == [3, 4, 5]
    assert np.bincount(dataset.labels).tolist() == [2] * 6
    assert dataset.image(11).size == (12, 9)


def test_the_older_layout(older: Path) -> None:
    assert find_data.data_name(older) == "cars196"
    check(Cars196(older))


def test_the_devkit(devkit: Path) -> None:
    assert find_data.data_name(devkit) == "cars196"
    dataset = Cars196(devkit)
    check(dataset)
    assert dataset.path(0).as_posix().endswith("cars_train/00001.jpg")
    assert dataset.label_names[dataset.labels[0]] == NAMES[195]


def test_class_folders(copied: Path) -> None:
    assert find_data.data_name(copied) == "cars196"
    dataset = Cars196(copied)
    assert dataset.official_test_classes is not None
    assert dataset.label_names[97] == "Eagle Talon Hatchback 1998"
    assert dataset.official_test_classes.tolist() == list(range(98, 196))


def test_a_few_classes_are_a_plain_folder(tmp_path: Path, make_image: Make) -> None:
    names = ["AM General Hummer SUV 2000", *(f"Audi {place} Sedan 2012" for place in range(4))]
    for name in names:
        make_image(tmp_path / name / "1.jpg")
    assert find_data.data_name(tmp_path) == "folder"


def test_damaged(older: Path) -> None:
    (older / "car_ims" / "000003.jpg").unlink()
    with pytest.raises(ValueError, match=r"1 of 12 listed images are missing.*000003.*Stanford"):
        Cars196(older)
    file = older / "cars_annos.mat"
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"not a whole \.mat file"):
        Cars196(older)
    savemat(file, {"something": np.arange(3)})
    with pytest.raises(ValueError, match="no annotations with relative_im_path, class"):
        Cars196(older)
    savemat(file, {"annotations": struct([boxes() | {"fname": "1.jpg"}])})
    with pytest.raises(ValueError, match="no annotations with relative_im_path, class"):
        Cars196(older)


def test_a_damaged_devkit(devkit: Path) -> None:
    test = devkit / "devkit" / "cars_test_annos_withlabels.mat"
    test.rename(devkit / "devkit" / "cars_test_annos.mat")
    with pytest.raises(ValueError, match=r"withlabels\.mat is missing"):
        Cars196(devkit)
    rows = [boxes() | {"class": np.uint8(1), "fname": "00001.jpg"}]
    savemat(test, {"annotations": struct(rows)})
    with pytest.raises(ValueError, match=r"expected 6 images of 3 .* found 4 images of 3"):
        Cars196(devkit)


def test_a_class_too_few(copied: Path) -> None:
    for part in ("train", "test"):
        for file in (copied / part / "Eagle Talon Hatchback 1998").iterdir():
            file.unlink()
    with pytest.raises(ValueError, match="found 194 images of 97 classes"):
        Cars196(copied)


def test_a_few_missing_images_are_taken_on_request_and_said(older: Path) -> None:
    for file in ("000003.jpg", "000011.jpg", "000012.jpg"):
        (older / "car_ims" / file).unlink()
    with pytest.raises(ValueError, match=r"3 of 12 listed.*no class"):
        Cars196(older, incomplete=True)  # both images of a class: a class may not be missing
    shutil.copy(older / "car_ims" / "000001.jpg", older / "car_ims" / "000012.jpg")
    with pytest.raises(ValueError, match=r"2 of 12 listed.*000003.*data\.incomplete=true"):
        Cars196(older)
    dataset = Cars196(older, incomplete=True)
    assert np.bincount(dataset.labels).tolist() == [2, 1, 2, 2, 2, 1]
    assert len(dataset) == 10
    assert all(dataset.path(index).exists() for index in range(10))
    said = dataset.describe()[INCOMPLETE]
    for words in (
        "10 of the 12",
        "1 images of training classes",
        "1 of test classes",
        "000003.jpg, 000011.jpg",
    ):
        assert words in said


def test_missing_images_of_class_folders_are_named_by_their_gaps(copied: Path) -> None:
    for number, folder in enumerate(sorted((copied / "train").iterdir()), start=1):
        (folder / "00001.jpg").rename(folder / f"{2 * number - 1:06d}.jpg")
        other = copied / "test" / folder.name
        (other / "00002.jpg").rename(other / f"{2 * number:06d}.jpg")
    assert INCOMPLETE not in Cars196(copied, incomplete=True).describe()
    (copied / "test" / "AM General Hummer SUV 2000" / "000002.jpg").unlink()
    dataset = Cars196(copied, incomplete=True)
    assert dataset.official_test_classes is not None
    assert dataset.official_test_classes.tolist() == list(range(98, 196))
    said = dataset.describe()[INCOMPLETE]
    assert "391 of the 392" in said
    assert "000002.jpg" in said


def test_a_class_may_not_be_missing(copied: Path) -> None:
    for part in ("train", "test"):
        shutil.rmtree(copied / part / "Eagle Talon Hatchback 1998")
    with pytest.raises(ValueError, match="194 of 97 to test; no class") as refused:
        Cars196(copied, incomplete=True)
    assert "data.incomplete" not in str(refused.value)
    with pytest.raises(ValueError, match="194 of 97 to test\\. It needs"):
        Cars196(copied)
