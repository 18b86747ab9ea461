"""In-Shop from its padded list: queries ask the gallery; damaged trees are named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.config import find_data
from unseen.core.contracts import annotations_of
from unseen.data.benchmarks.benchmark import Counts
from unseen.data.benchmarks.official import Inshop
from unseen.protocols.half_split import HalfSplit

Make = Callable[..., Path]
TRAIN, TEST = [1, 2, 3, 4, 5], [6, 7, 8]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inshop, "expected", Counts(5, 9, 3, 9, query=3, gallery=6))


@pytest.fixture
def original(tmp_path: Path, make_image: Make) -> Path:
    """Names padded to 70 columns, the count in the first line; the last training item is alone."""
    lines = []
    for item in (*TRAIN, *TEST):
        statuses = ["train"] * (1 if item == 5 else 2)
        if item in TEST:
            statuses = ["query", "gallery", "gallery"]
        for view, status in enumerate(statuses, start=1):
            path = f"img/WOMEN/Dresses/id_{item:08d}/02_{view}_front.jpg"
            make_image(tmp_path / path)
            lines.append(f"{path:<70}id_{item:08d}     {status}")
    head = f"{len(lines)}\nimage_name {'item_id':>66} evaluation_status\n"
    (tmp_path / "list_eval_partition.txt").write_text(head + "\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("layout", ["flat", "as the archives unpack"])
def test_queries_and_gallery(original: Path, layout: str) -> None:
    if layout != "flat":
        (original / "Eval").mkdir()
        (original / "Img").mkdir()
        name = "list_eval_partition.txt"
        (original / name).rename(original / "Eval" / name)
        (original / "img").rename(original / "Img" / "img")
    assert find_data.data_name(original) == "inshop"
    dataset = Inshop(original)
    assert dataset.label_names[0] == "id_00000001"
    (split,) = HalfSplit()(dataset, 0)
    assert len(split.test) == 9
    assert split.query is not None
    assert split.gallery is not None
    assert split.query.tolist() == [0, 3, 6]
    assert split.gallery.tolist() == [1, 2, 4, 5, 7, 8]
    trained = np.unique(dataset.labels[np.concatenate([split.train, split.validation])])
    assert trained.tolist() == [0, 1, 2, 3]  # not the item with one image
    assert annotations_of(dataset).query is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.partition("\n")[2], "must begin with a count"),
        (lambda t: t.replace("item_id", "item"), "must begin with a count"),
        (lambda t: "", "must begin with a count"),
        (lambda t: t.replace("18\n", "52712\n", 1), "announces 52712 images and lists 18"),
        (lambda t: t.rpartition("id_")[0], "line 20: expected 3 columns"),
        (lambda t: t.replace("query", "probe"), "one of .* got .*probe"),
        (lambda t: t.replace("query", "gallery"), "3 query, 6 gallery.* found"),
        (lambda t: t.replace("query", "train"), "found 12 images of 8 classes"),
    ],
)
def test_damaged_lists(original: Path, change: Callable[[str], str], message: str) -> None:
    file = original / "list_eval_partition.txt"
    file.write_text(change(file.read_text()))
    with pytest.raises(ValueError, match=message) as error:
        Inshop(original)
    assert "DeepFashion" in str(error.value)


def test_missing_images(original: Path) -> None:
    (original / "img/WOMEN/Dresses/id_00000006/02_1_front.jpg").unlink()
    with pytest.raises(ValueError, match="1 of 18 listed images are missing"):
        Inshop(original)
    (original / "list_eval_partition.txt").unlink()
    with pytest.raises(ValueError, match=r"list_eval_partition\.txt is missing"):
        Inshop(original)
