"""Tables of images: columns by any name, OpenMetricLearning's format both ways, mistakes."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.config import find_data
from unseen.core.contracts import annotations_of
from unseen.data.folder import Folder
from unseen.data.images import table_file
from unseen.data.images.write_table import write_table
from unseen.data.table import Table

Make = Callable[..., Path]
CLASSES, EACH = 8, 4
Columns = dict[str, list[Any]]


@pytest.fixture
def columns(tmp_path: Path, make_image: Make) -> Columns:
    """Eight classes of four images; the last four are tested: the first image asks."""
    held: Columns = {"label": [], "path": [], "split": [], "is_query": [], "is_gallery": []}
    for c in range(CLASSES):
        for view in range(EACH):
            make_image(tmp_path / "images" / f"{c}_{view}.jpg", (20, 10))
            held["label"].append(f"item {c}")
            held["path"].append(f"images/{c}_{view}.jpg")
            tested = c >= 4
            held["split"].append("validation" if tested else "train")
            held["is_query"].append(str(view == 0) if tested else "")
            held["is_gallery"].append(str(view > 0) if tested else "")
    held["category"] = ["shoes" if int(label[-1]) % 2 else "bags" for label in held["label"]]
    held["sequence"] = [str(row // 2) for row in range(CLASSES * EACH)]
    return held


def written(folder: Path, columns: Columns, name: str = "data.csv") -> Path:
    table_file.write(folder / name, columns)
    return folder / name


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_the_format_of_openmetriclearning(tmp_path: Path, columns: Columns, name: str) -> None:
    if name.endswith("parquet"):
        flags: dict[str, bool | None] = {"True": True, "False": False, "": None}
        for key in ("is_query", "is_gallery"):
            columns[key] = [flags[word] for word in columns[key]]
    file = written(tmp_path, columns, name)
    assert find_data.data_name(file) == "table"
    dataset = Table(file)
    assert len(dataset) == 32
    assert dataset.name == "data"
    assert dataset.official_test_classes is not None
    assert dataset.official_test_classes.tolist() == [4, 5, 6, 7]
    message = annotations_of(dataset)
    assert message.query is not None
    assert message.gallery is not None
    assert message.ignore_groups is not None
    assert np.flatnonzero(message.query).tolist() == [16, 20, 24, 28]
    assert message.gallery.sum() == 12
    assert np.array_equal(message.ignore_groups, np.arange(32) // 2)
    assert list(message.labels) == ["category"]
    assert list(message.label_names["category"]) == ["bags", "shoes"]
    assert dataset.image(5).size == (20, 10)
    assert dataset.path(5) == tmp_path / "images" / "1_1.jpg"


def test_names_of_columns_are_free(tmp_path: Path, columns: Columns) -> None:
    roles = np.where(np.array(columns["is_query"]) == "True", "query", "gallery")
    held = {
        "Datei": [str(tmp_path / path) for path in columns["path"]],
        "Artikel": columns["label"],
        "Kamera": ["-1"] * 30 + ["7", "7"],
        "role": np.where(np.array(columns["split"]) == "train", "", roles).tolist(),
    }
    text = (
        ";".join(held) + "\n" + "\n".join(";".join(row) for row in zip(*held.values(), strict=True))
    )
    (tmp_path / "x.csv").write_text("\ufeff" + text)
    dataset = Table(
        tmp_path / "x.csv", "Datei", "Artikel", query="role", gallery="role", group="Kamera"
    )
    assert dataset.official_test_classes is None
    message = annotations_of(dataset)
    assert message.query is not None
    assert message.ignore_groups is not None
    assert np.flatnonzero(message.query).tolist() == [16, 20, 24, 28]
    assert (message.ignore_groups >= 0).sum() == 2
    assert message.labels == {}


def test_a_column_can_be_left_out(tmp_path: Path, columns: Columns) -> None:
    dataset = Table(written(tmp_path, columns), split=None, query=None, gallery=None, group=None)
    message = annotations_of(dataset)
    assert dataset.official_test_classes is None
    assert message.query is None
    assert message.ignore_groups is None
    assert "split" in message.labels  # what is not used is a further label


def test_boxes(tmp_path: Path, columns: Columns) -> None:
    halves = Image.new("RGB", (20, 10), "white")
    halves.paste("black", (0, 0, 8, 10))
    halves.save(tmp_path / "images" / "0_0.png")
    columns["path"][0] = "images/0_0.png"
    boxes: list[list[Any]] = [[2.0, 1, 8, 9]] + [["", "", "", ""]] * 30 + [[15, 5, 99, 99]]
    for place, edge in enumerate(("x_1", "y_1", "x_2", "y_2")):
        columns[edge] = [box[place] for box in boxes]
    dataset = Table(written(tmp_path, columns))
    assert dataset.image(0).size == (6, 8)
    assert np.asarray(dataset.image(0)).max() == 0
    with dataset.opened(0) as image:
        assert image.size == (6, 8)
    assert dataset.image(1).size == (20, 10)
    assert dataset.image(31).size == (5, 5)  # not beyond the image
    columns["x_2"][0] = 2
    with pytest.raises(ValueError, match=r"box \[2, 1, 2, 9\] is empty"):
        Table(written(tmp_path, columns))
    columns["x_2"][0] = "wide"
    with pytest.raises(ValueError, match="boxes must be numbers"):
        Table(written(tmp_path, columns))
    del columns["x_2"]
    with pytest.raises(ValueError, match="a box needs x_1, y_1, x_2, y_2"):
        Table(written(tmp_path, columns))


def test_boxes_by_width_and_height_and_in_one_cell(tmp_path: Path, columns: Columns) -> None:
    corners: list[list[Any]] = [[2, 1, 8, 9]] + [["", "", "", ""]] * 30 + [[5, 5, 9, 10]]
    for place, edge in enumerate(("x_1", "y_1", "x_2", "y_2")):
        columns[edge] = [box[place] for box in corners]
    expected = Table(written(tmp_path, columns))
    for edge in ("x_1", "y_1", "x_2", "y_2"):
        del columns[edge]
    extents: list[list[Any]] = [[2, 1, 6, 8]] + [["", "", "", ""]] * 30 + [[5, 5, 4, 5]]
    for names in (("x", "y", "w", "h"), ("x", "y", "width", "height")):
        more = {name: [box[place] for box in extents] for place, name in enumerate(names)}
        result = Table(written(tmp_path, columns | more))
        assert np.array_equal(result.boxes, expected.boxes)
        assert not set(names) & set(result.annotations.labels)
    for first, last in (("2 1 6 8", "5,5,4,5"), ("[2, 1, 6, 8]", "(5; 5; 4; 5)")):
        result = Table(written(tmp_path, columns | {"bbox": [first, *[""] * 30, last]}))
        assert np.array_equal(result.boxes, expected.boxes)
    with pytest.raises(ValueError, match=r"row 2: bbox must be x, y, width, height, got '1 2 3'"):
        Table(written(tmp_path, columns | {"bbox": ["1 2 3", *[""] * 31]}))


def test_unreadable_images_are_left_out_and_named(tmp_path: Path, columns: Columns) -> None:
    (tmp_path / "images" / "0_1.jpg").write_text("no image")
    (tmp_path / "images" / "3_1.jpg").unlink()
    dataset = Table(written(tmp_path, columns))
    assert len(dataset) == 30
    assert dataset.describe()["unreadable files"] == 2
    message = annotations_of(dataset)
    assert message.query is not None
    assert np.flatnonzero(message.query).tolist() == [14, 18, 22, 26]  # columns keep step
    with pytest.raises(ValueError, match="cannot read image"):
        Table(tmp_path / "data.csv", strict=True)


def test_written_as_it_was_read(tmp_path: Path, columns: Columns) -> None:
    for place, edge in enumerate(("x_1", "y_1", "x_2", "y_2")):
        columns[edge] = [(1, 2, 9, 8)[place], *[""] * 31]
    columns["sequence"] = ["", *[f"camera {row % 5}" for row in range(31)]]
    first = Table(written(tmp_path, columns))
    write_table(first, tmp_path / "again.csv")
    back = table_file.read(tmp_path / "again.csv")
    assert back == table_file.read(tmp_path / "data.csv")
    again = Table(tmp_path / "again.csv")
    assert again.fingerprint() == first.fingerprint()


def test_a_folder_becomes_a_table(tmp_path: Path, make_image: Make) -> None:
    for c in range(6):
        for view in range(3):
            make_image(tmp_path / "images" / f"class {c}" / f"{view}.jpg")
    folder = Folder(tmp_path / "images")
    with pytest.raises(ValueError, match="no official test classes"):
        write_table(folder, tmp_path / "x.csv")
    write_table(folder, tmp_path / "x.csv", test_classes=np.array([4, 5]))
    dataset = Table(tmp_path / "x.csv")
    assert dataset.label_names == folder.label_names
    assert np.array_equal(dataset.labels, folder.labels)
    assert dataset.official_test_classes is not None
    assert dataset.official_test_classes.tolist() == [4, 5]
    assert table_file.read(tmp_path / "x.csv")["path"][0] == "images/class 0/0.jpg"


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"label": "klass"}, "no column 'klass' for label, it has label, path"),
        ({}, {"group": "camera"}, "no column 'camera' for group"),
        ({"label": ["one"] * 32}, {}, "1 classes"),
        ({"split": ["train", "test"] * 16}, {}, "8 classes are in both train and test"),
        ({"split": ["training"] * 32}, {}, "train, validation or test, got 'training'"),
        ({"is_query": ["maybe"] * 32}, {}, "query must be true or false, got 'maybe'"),
        ({"path": ["gone.jpg"] * 32}, {}, "none of the 32 images .* can be read; the first"),
    ],
)
def test_mistakes(
    tmp_path: Path, columns: Columns, change: Columns, options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Table(written(tmp_path, columns | change), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"path,label\n", "has no rows"),
        (b"path,label\na.jpg,1,2\n", "row 2: expected 2 entries as in the first line, got 3"),
        (b"path,path\na.jpg,1\n", "two columns of the same name"),
        (b"path,label\n\xff\xfe,1\n", "not UTF-8"),
    ],
)
def test_files_that_are_no_table(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Table(tmp_path / "x.csv")
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="not a whole Parquet file"):
        Table(tmp_path / "x.parquet")
    with pytest.raises(FileNotFoundError, match="no such file"):
        Table(tmp_path / "none.csv")


def test_a_spreadsheet_takes_no_cell_for_a_formula(tmp_path: Path) -> None:
    texts = [
        "=cmd|' /C calc'!A0",
        "+a",
        "-b",
        "@c",
        "\td",
        "\re",
        "＝f",
        "'=g",
        "''-h",
        "'i",
        "j=1",
    ]
    numbers = ["-1", "+2.5", "-1e-3", "7"]
    columns: Columns = {"label": [*texts, *numbers], "=column": ["x"] * 15}
    file = written(tmp_path, columns)
    with file.open(newline="", encoding="utf-8") as stream:
        head, *rows = csv.reader(stream)
    cells = [*head, *(row[0] for row in rows[: len(texts)])]
    assert not [cell for cell in cells if cell[0] in "=+-@\t\r＝"]
    assert [row[0] for row in rows[len(texts) :]] == numbers
    assert table_file.read(file) == columns


def test_sets_of_labels_and_levels(tmp_path: Path, columns: Columns) -> None:
    """Without a column `label` the first label, or the last level, is the class."""
    bare: Columns = {"path": columns["path"]}
    sets = [f"c{row // 4}| even " if row % 2 == 0 else f"c{row // 4}" for row in range(32)]
    dataset = Table(written(tmp_path, bare | {"labels": sets}))
    assert dataset.label_names == [f"c{c}" for c in range(8)]
    message = annotations_of(dataset)
    assert message.label_sets is not None
    assert message.set_names == [*dataset.label_names, "even"]
    assert message.label_sets[:3].tolist() == [[0, 8], [0, -1], [0, 8]]

    levels = {"level_1": [f"make {row // 8}" for row in range(32)]}
    levels["level_2"] = [["small", "large"][row // 4 % 2] for row in range(32)]
    dataset = Table(written(tmp_path, bare | levels))
    assert dataset.label_names[:2] == ["make 0/large", "make 0/small"]
    assert annotations_of(dataset).levels == ("level_1", "level_2")
    assert Table(tmp_path / "data.csv", label="level_1").label_names == [
        f"make {m}" for m in range(4)
    ]
    assert len(Table(tmp_path / "data.csv", label=None).label_names) == 32

    with pytest.raises(ValueError, match="2 items have no labels, the first is 1"):
        Table(written(tmp_path, bare | {"labels": ["", " | ", *sets[2:]]}))
    with pytest.raises(ValueError, match=r"levels must be called level_1, .*got level_2"):
        Table(written(tmp_path, bare | {"level_2": levels["level_2"]}))
    with pytest.raises(ValueError, match="no column 'label' for label"):
        Table(written(tmp_path, bare))


def test_sets_are_written_and_read_again(tmp_path: Path, columns: Columns) -> None:
    sets = [f"{label}|all" for label in columns["label"]]
    written_once = Table(written(tmp_path, columns | {"labels": sets}))
    write_table(written_once, tmp_path / "again.csv")
    again = annotations_of(Table(tmp_path / "again.csv"))
    assert again.label_sets is not None
    assert again.label_sets.tolist() == annotations_of(written_once).label_sets.tolist()  # type: ignore[union-attr]
    assert again.set_names == annotations_of(written_once).set_names
