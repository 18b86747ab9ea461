"""Groceries from its lists: products, their parents, photographs that ask iconic images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.config import find_data
from unseen.core.contracts import annotations_of
from unseen.data.benchmarks.benchmark import Counts
from unseen.data.benchmarks.official import Groceries
from unseen.protocols.half_split import HalfSplit

Make = Callable[..., Path]
PRODUCTS = [("Gala", "Fruit", "Apple"), ("Pink", "Fruit", "Apple"), ("Oat", "Packages", "Milk")]
PRODUCTS += [("Soy", "Packages", "Milk"), ("Leek", "Vegetables", "Leek"), ("Kiwi", "Fruit", "Kiwi")]
PRODUCTS += [("Lime", "Fruit", "Lime"), ("Pear", "Fruit", "Pear"), ("Plum", "Fruit", "Plum")]


@pytest.fixture
def original(tmp_path: Path, make_image: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Groceries, "expected", Counts(5, 20, 4, 16, query=12, gallery=4))
    root = tmp_path / "dataset"
    icons = "iconic-images-and-descriptions"
    table = ["Class Name (str),Class ID (int),Coarse Class Name (str),Coarse Class ID (int),"]
    table[0] += "Iconic Image Path (str),Product Description Path (str)"
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for number, (name, kind, coarse) in enumerate(PRODUCTS):
        icon = make_image(root / icons / kind / coarse / name / f"{name}_Iconic.jpg")
        table.append(f"{name},{number},{coarse},{number},/{icon.relative_to(root)},/none.txt")
        for part, lines in lists.items():
            photograph = make_image(root / part / kind / coarse / name / f"{name}_001.jpg")
            lines.append(f"{photograph.relative_to(root)}, {number}, {number}")
    (root / "classes.csv").write_text("\n".join(table) + "\n")
    for part, lines in lists.items():
        (root / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_photographs_of_other_products_ask_their_iconic_images(original: Path) -> None:
    assert find_data.data_name(original) == "groceries"
    dataset = Groceries(original)
    assert sorted(dataset.label_names) == sorted(name for name, *_ in PRODUCTS)
    tested = {dataset.label_names[c] for c in dataset.official_test_classes}
    assert tested == {"Pink", "Soy", "Kiwi", "Pear"}, "those with an odd number"
    (split,) = HalfSplit()(dataset, 0)
    assert split.query is not None
    assert split.gallery is not None
    request, answering = split.test[split.query], split.test[split.gallery]
    assert len(request) == 12
    assert all("Iconic" in dataset.path(int(i)).name for i in answering)
    assert not any("Iconic" in dataset.path(int(i)).name for i in request)


def test_products_have_parents(original: Path) -> None:
    dataset = Groceries(original)
    message = annotations_of(dataset)
    assert list(message.levels) == ["kind", "coarse"]
    for name, kind, coarse in PRODUCTS:
        items = np.flatnonzero(dataset.labels == list(dataset.label_names).index(name))
        assert len(items) == 4
        for column, expected in (("kind", kind), ("coarse", coarse)):
            codes = message.labels[column][items]
            assert {message.label_names[column][c] for c in codes} == {expected}


def test_damaged(original: Path) -> None:
    next((original / "dataset" / "val").rglob("*.jpg")).unlink()
    with pytest.raises(ValueError, match=r"1 of 36 listed images are missing.*marcusklasson"):
        Groceries(original)
    (original / "dataset" / "val.txt").write_text("one column\n")
    with pytest.raises(ValueError, match=r"val\.txt, line 1: expected 3 columns, got 1"):
        Groceries(original)
