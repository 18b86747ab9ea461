"""Stanford Online Products from its lists; super classes are kept; damaged trees are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.config import find_data
from unseen.core.contracts import annotations_of
from unseen.data.benchmarks.benchmark import Counts
from unseen.data.benchmarks.official import OnlineProducts

HEADER = "image_id class_id super_class_id path\n"
Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnlineProducts, "expected", Counts(4, 8, 3, 6))


@pytest.fixture
def original(tmp_path: Path, make_image: Make) -> Path:
    root = tmp_path / "Stanford_Online_Products"
    image = 0
    for file, products in (("Ebay_train", range(1, 5)), ("Ebay_test", range(11319, 11322))):
        lines = ""
        for product in products:
            number, group = (1, "bicycle") if product % 2 else (12, "toaster")
            for view in range(2):
                image += 1
                path = f"{group}_final/{111085122800 + product}_{view}.JPG"
                make_image(root / path)
                lines += f"{image} {product} {number} {path}\n"
        (root / f"{file}.txt").write_text(HEADER + lines)
    (root / "bicycle_final" / "._111085122801_0.JPG").write_bytes(b"\0")
    return root


@pytest.mark.parametrize("above", [False, True])
def test_lists(original: Path, above: bool) -> None:
    root = original.parent if above else original
    assert find_data.data_name(root) == "online_products"
    dataset = OnlineProducts(root)
    assert dataset.label_names == ["1", "2", "3", "4", "11319", "11320", "11321"]
    assert dataset.official_test_classes is not None
    assert dataset.official_test_classes.tolist() == [4, 5, 6]
    message = annotations_of(dataset)
    assert list(message.label_names["super_class"]) == ["bicycle", "toaster"]
    assert message.labels["super_class"].tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0]
    assert dataset.image(13).size == (12, 9)


def test_lists_and_images_apart(original: Path) -> None:
    (original / "Info_Files").mkdir()
    (original / "images").mkdir()
    for entry in list(original.iterdir()):
        if entry.suffix == ".txt":
            entry.rename(original / "Info_Files" / entry.name)
        elif entry.name.endswith("_final"):
            entry.rename(original / "images" / entry.name)
    assert len(OnlineProducts(original)) == 14


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.splitlines(keepends=True)[0],
            "found 8 images of 4 classes to train on and 0 of 0",
        ),
        (lambda t: t[:-20], "line 7: expected 4 columns|missing"),
        (lambda t: t.replace(" 11321 ", " 11320 "), "expected .* 6 of 3 .* found .* 6 of 2"),
        (lambda t: t.replace(" 11321 ", " 4 "), "1 classes are in both train and test.*Stanford"),
        (lambda t: t.replace(" 11321 ", " x "), "invalid literal"),
    ],
)
def test_damaged_lists(original: Path, change: Callable[[str], str], message: str) -> None:
    file = original / "Ebay_test.txt"
    file.write_text(change(file.read_text()))
    with pytest.raises(ValueError, match=message):
        OnlineProducts(original)


def test_missing_parts(original: Path) -> None:
    (original / "toaster_final" / "111085122802_1.JPG").unlink()
    with pytest.raises(ValueError, match=r"1 of 14 listed images are missing.*Stanford CVGL"):
        OnlineProducts(original)
    (original / "Ebay_train.txt").unlink()
    assert find_data.data_name(original) == "online_products"
    with pytest.raises(ValueError, match=r"Ebay_train\.txt is missing"):
        OnlineProducts(original)
