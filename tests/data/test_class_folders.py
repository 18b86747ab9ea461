"""One rule for the class of an image in folders, shared by every command, and counts of classes
that exist."""

from pathlib import Path

import pytest
from PIL import Image

from unseen.config import find_data
from unseen.config.tables import Component
from unseen.data.folder import Folder, class_of
from unseen.runs.check_data import checked
from unseen.search.image_sources import find


def paint(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (24, 16), "red").save(path)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Uneven folders: `red` below two parents, images in `cats` itself, one in the root."""
    root = tmp_path / "pets"
    for name in ("cats/red", "cats/old/grey", "cats", "dogs/red", "birds"):
        for k in range(2):
            paint(root / name / f"{k}.png")
    return root


CLASSES = ["birds", "cats", "cats/old/grey", "cats/red", "dogs/red"]


def opened(root: Path, **values: object) -> Folder:
    data = find_data.open_data(Component(**find_data.data_table(str(root)) | values))
    assert isinstance(data, Folder)
    return data


def test_the_class_is_the_path_of_the_folder_that_holds_the_image(pets: Path) -> None:
    data = opened(pets)
    assert data.label_names == CLASSES
    assert len(data) == 10
    assert sorted({str(source.label) for source in find([pets])}) == CLASSES
    message = " ".join(data.describe()["notes"])
    assert "red (cats/red, dogs/red)" in message, "equal names under two parents are reported"
    assert "data.levels=1 takes the 3 folders of the first level" in message


@pytest.mark.parametrize(
    ("levels", "class_level", "folders", "label"),
    [
        (0, 0, ("a", "b", "c"), "a/b/c"),
        (0, 0, ("a",), "a"),
        (0, 0, (), None),
        (1, 0, ("a", "b"), "a"),
        (2, 0, ("a", "b", "c"), "a/b"),
        (2, 1, ("a", "b"), "a"),
        (2, 0, ("a",), None),
    ],
)
def test_levels_say_otherwise(
    levels: int, class_level: int, folders: tuple[str, ...], label: str | None
) -> None:
    assert class_of(folders, levels, class_level) == label


def test_a_flat_folder_has_nothing_to_say(tmp_path: Path) -> None:
    for name in "abcd":
        paint(tmp_path / name / "0.png")
    data = opened(tmp_path)
    assert data.label_names == list("abcd")
    assert data.describe()["notes"] == []


def test_images_of_parts_have_the_same_labels_in_an_index(tmp_path: Path) -> None:
    for name in ("train/a", "train/b/c", "test/d", "test/e"):
        paint(tmp_path / name / "0.png")
    paint(tmp_path / "test" / "unknown.png")
    assert opened(tmp_path).label_names == ["a", "b/c", "d", "e"]
    labels = {source.label for source in find([tmp_path])}
    assert labels == {"a", "b/c", "d", "e", None}


def test_a_level_below_one_or_without_levels_is_refused(pets: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.levels must be 0 .*got -1"):
        Folder(pets, levels=-1)
    with pytest.raises(ValueError, match=r"class_level must be 1 to data\.levels=0, got 1"):
        Folder(pets, class_level=1)


def test_files_that_cannot_be_read_make_no_classes(tmp_path: Path) -> None:
    root = tmp_path / "deep"
    for name in ("a/x/1", "a/x/2", "b/y/1", "b/z/1"):
        paint(root / name / "0.png")
        (root / name / "broken.jpg").write_text("no image")
    (root / "c" / "y" / "9").mkdir(parents=True)
    (root / "c" / "y" / "9" / "broken.jpg").write_text("no image")
    for levels in (0, 3):
        data = opened(root, levels=levels)
        result = checked(data, None)
        assert (
            sorted(result.class_sizes) == data.label_names == ["a/x/1", "a/x/2", "b/y/1", "b/z/1"]
        )
        assert set(result.class_sizes.values()) == {1}
        assert result.lost_classes == data.describe()["lost classes"] == ["c/y/9"]
        assert result.to_dict()["lost_classes"] == ["c/y/9"]


def test_rows_that_cannot_be_read_make_no_classes(tmp_path: Path) -> None:
    rows = ["path,label"]
    for name in "abcd":
        paint(tmp_path / "images" / f"{name}.png")
        rows.append(f"images/{name}.png,class {name}")
    (tmp_path / "images" / "e.png").write_text("no image")
    (tmp_path / "t.csv").write_text("\n".join([*rows, "images/e.png,class e"]))
    data = find_data.open_data(Component(name="table", root=str(tmp_path / "t.csv")))
    result = checked(data, None)
    assert sorted(result.class_sizes) == list(data.label_names)
    assert result.lost_classes == data.describe()["lost classes"] == ["class e"]
