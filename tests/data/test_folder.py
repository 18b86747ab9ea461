import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.config.find_data import data_table
from unseen.core import contracts
from unseen.data.folder import Folder
from unseen.data.images.decode import UnreadableImageError
from unseen.runs.check_data import checked


def one_line(error: BaseException) -> str:
    text = str(error)
    assert text
    assert "\n" not in text
    return text


def paint(path: Path, color: str = "red") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (24, 16), color).save(path)


@pytest.fixture
def root(tmp_path) -> Path:
    """Five classes; `elk` has one image."""
    root = tmp_path / "photos"
    for name in ("dog", "ant", "cat", "bee"):
        for k in range(3):
            paint(root / name / f"{k}.png")
    paint(root / "elk" / "only.JPG", "blue")
    return root


def test_classes_are_sorted_folder_names(root):
    data = Folder(root)
    assert isinstance(data, contracts.Dataset)
    assert data.name == "photos"
    assert data.label_names == ["ant", "bee", "cat", "dog", "elk"]
    assert data.labels.dtype == np.int64
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert len(data) == 13
    assert data.path(12) == root / "elk" / "only.JPG"
    assert data.official_test_classes is None
    assert data.image(0).getpixel((3, 3)) == (255, 0, 0)
    assert data.image(12).mode == "RGB"


def test_every_format_nested_folders_and_hidden_files(root):
    for suffix in ("jpg", "jpeg", "PNG", "bmp", "gif", "webp", "tif", "TIFF"):
        paint(root / "cat" / "more" / "deep" / f"x.{suffix}")
    paint(root / "cat" / "._x.jpg")
    paint(root / "cat" / ".thumbnails" / "x.jpg")
    paint(root / ".hidden" / "x.jpg")
    (root / "cat" / "notes.txt").write_text("no image")
    (root / "empty").mkdir()
    data = Folder(root, levels=1, strict=True)
    assert data.label_names == ["ant", "bee", "cat", "dog", "elk"]
    assert np.bincount(data.labels).tolist() == [3, 3, 11, 3, 1]
    data = Folder(root, strict=True)
    assert data.label_names == ["ant", "bee", "cat", "cat/more/deep", "dog", "elk"]
    assert np.bincount(data.labels).tolist() == [3, 3, 3, 8, 3, 1]


def test_linked_folders_are_followed_and_links_that_lead_back_are_not(root, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for folder in root.iterdir():
        if folder.is_dir():
            (linked / folder.name).symlink_to(folder)
    here, there = Folder(root), Folder(linked)
    assert np.array_equal(there.labels, here.labels)
    assert there.fingerprint() == here.fingerprint()
    (root / "loop").symlink_to(root)
    (linked / "loop").symlink_to(tmp_path)
    assert len(Folder(root)) == len(here)
    assert len(Folder(linked)) == len(here)


def test_unreadable_files_are_left_out_and_named(root):
    (root / "ant" / "bad.jpg").write_text("no image")
    (root / "cat" / "1.png").write_bytes((root / "cat" / "1.png").read_bytes()[:30])
    data = Folder(root)
    message = data.describe()
    assert message["items"] == len(data) == 12
    assert message["classes"] == 5
    assert message["classes with one image"] == 1
    assert message["smallest class"] == 1
    assert message["largest class"] == 3
    assert message["unreadable files"] == 2
    assert message["unreadable"] == [
        f"{root / 'ant' / 'bad.jpg'} (not an image)",
        f"{root / 'cat' / '1.png'} (not an image)",
    ]
    with pytest.raises(ValueError, match=r"ant.bad\.jpg: not an image") as caught:
        Folder(root, strict=True)
    one_line(caught.value)


def test_a_class_without_readable_images_is_no_class(root):
    (root / "fox").mkdir()
    (root / "fox" / "bad.jpg").write_text("no image")
    data = Folder(root)
    assert data.label_names == ["ant", "bee", "cat", "dog", "elk"]
    assert data.labels.max() == 4


def test_no_such_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*gone") as caught:
        Folder(tmp_path / "gone")
    assert "<class>" in one_line(caught.value)


def test_a_file(tmp_path):
    path = tmp_path / "image.jpg"
    paint(path)
    with pytest.raises(ValueError, match="is a file, not a folder") as caught:
        Folder(path)
    one_line(caught.value)


def test_no_images(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("text")
    paint(tmp_path / "loose.png")
    with pytest.raises(ValueError, match=r"expected .*<class>") as caught:
        Folder(tmp_path)
    assert "1 folders without images and 1 files, 1 of them images" in one_line(caught.value)
    paint(tmp_path / "letters" / "b" / "b.png")
    with pytest.raises(ValueError, match="If they are of one class, give the folder above it"):
        Folder(tmp_path / "letters" / "b")


def test_only_unreadable_images(root):
    for path in root.rglob("*.*"):
        path.write_text("no image")
    with pytest.raises(ValueError, match="none of the 13 images") as caught:
        Folder(root)
    assert "0.png (not an image)" in one_line(caught.value)


def test_too_few_classes(root):
    for name in ("ant", "bee"):
        shutil.rmtree(root / name)
    with pytest.raises(ValueError, match=r"3 classes .*cat, dog, elk.*at least 4") as caught:
        Folder(root)
    one_line(caught.value)


def test_fingerprint_follows_content_names_and_labels(root):
    first = Folder(root).fingerprint()
    assert Folder(root).fingerprint() == first
    copy = root.parent / "elsewhere" / "photos"
    shutil.copytree(root, copy)
    assert Folder(copy).fingerprint() == first
    paint(copy / "ant" / "1.png", "green")
    changed = Folder(copy).fingerprint()
    assert changed != first
    (copy / "ant" / "1.png").rename(copy / "bee" / "zz.png")
    assert Folder(copy).fingerprint() not in {first, changed}
    (root / "dog").rename(root / "aaa")
    assert Folder(root).fingerprint() != first


def test_opened_decodes_less(tmp_path):
    for name in "abcd":
        (tmp_path / name).mkdir()
        Image.new("RGB", (640, 480), "red").save(tmp_path / name / "x.jpg")
    data = Folder(tmp_path)
    assert data.image(0).size == (640, 480)
    with data.opened(0) as image:
        assert image.size == (640, 480)
        assert image.pixels(None, (100, 100)).shape == (120, 160, 3)


def test_progress(root):
    seen = []
    Folder(root, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 13) for done in range(1, 14)]


@pytest.fixture
def strange(root):
    """A pipe, and a name that is not UTF-8, among the images."""
    os.mkfifo(root / "ant" / "pipe.png")
    named = os.fsencode(root / "bee") + b"/\xff.png"
    paint(root / "bee" / "x.png")
    os.rename(root / "bee" / "x.png", named)
    return root


def test_pipes_and_names_that_are_not_utf_8_are_left_out_and_named(strange):
    data = Folder(strange)
    assert len(data) == 13
    pipe, named = data.describe()["unreadable"]
    assert pipe == f"{strange / 'ant' / 'pipe.png'} (a pipe, socket or device, not a file)"
    assert named == f"{strange / 'bee'}/\\xff.png (its name is not UTF-8: rename it)"
    named.encode()
    assert data.fingerprint()
    with pytest.raises(UnreadableImageError, match="a pipe"):
        Folder(strange, strict=True)


def test_a_class_whose_name_is_not_utf_8_is_left_out_and_named(root):
    os.rename(root / "dog", os.fsencode(root) + b"/d\xffg")
    data = Folder(root)
    assert data.label_names == ["ant", "bee", "cat", "elk"]
    assert len(data.describe()["unreadable"]) == 3


def test_the_check_of_images_names_them_and_does_not_wait(strange):
    data = Folder(strange)
    result = checked(data, None)
    wrong = result.to_dict()["problems"]["unreadable"]
    assert [Path(entry["path"]).name for entry in wrong] == ["pipe.png", "\\xff.png"]
    json.dumps(result.to_dict()).encode()


def test_what_is_left_out_is_said(root):
    paint(root / "stray.jpg")
    (root / "fox").mkdir()
    (root / "cat" / ".DS_Store").write_bytes(b"x")
    (root / "cat" / "notes.txt").write_text("text")
    assert Folder(root).describe()["notes"] == [
        "left out, images that lie in no class folder: 1 (stray.jpg)",
        "left out, folders without images: 1 (fox)",
        "left out, files that are no images by their names: 2 (cat/.DS_Store, cat/notes.txt)",
    ]
    assert len(Folder(root)) == 13


def test_parts_of_a_classification_set_are_put_together(root, tmp_path):
    """train/<class>, val/<class>: the same classes, so the split must be by class."""
    for part in ("train", "val"):
        shutil.copytree(root, tmp_path / "kaggle" / part)
    paint(tmp_path / "kaggle" / "test" / "unknown.jpg")  # images to submit have no class
    table = data_table(str(tmp_path / "kaggle"))
    assert table == {"name": "folder", "root": str(tmp_path / "kaggle"), "parts": True}
    data = Folder(table["root"], parts=True)
    assert data.label_names == ["ant", "bee", "cat", "dog", "elk"]
    assert len(data) == 26
    assert data.official_test_classes is None
    assert data.describe()["notes"] == [
        "train, val put together and divided by class (5 of 5 classes are in several of them): "
        "unseen classes are what is evaluated",
        "left out, images that lie in no class folder: 1 (test/unknown.jpg)",
    ]


def test_parts_that_share_no_class_are_the_official_split(tmp_path):
    for part, names in (("train", "abc"), ("valid", "d"), ("test", "ef")):
        for name in names:
            paint(tmp_path / part / name / "0.png")
    data = Folder(tmp_path, parts=True)
    assert data.label_names == list("abcdef")
    assert data.official_test_classes.tolist() == [4, 5]
    assert data.annotations.validation_classes.tolist() == [3]
    assert data.describe()["notes"] == []


@pytest.fixture
def shop(tmp_path) -> Path:
    """category/product/*.jpg; two categories have a product of the same name."""
    for category, products in (("hats", ("red", "blue")), ("shoes", ("red", "low", "high"))):
        for product in products:
            for k in range(2):
                paint(tmp_path / "shop" / category / product / f"{k}.png")
    return tmp_path / "shop"


def test_folders_in_folders_are_classes_and_the_other_command_is_said(shop):
    assert data_table(str(shop)) == {"name": "folder", "root": str(shop)}
    data = Folder(shop)
    assert data.label_names == ["hats/blue", "hats/red", "shoes/high", "shoes/low", "shoes/red"]
    assert data.describe()["notes"] == [
        "the folder that holds an image is its class (hats/blue, hats/red, shoes/high and 2 more); "
        "data.levels=1 takes the 2 folders of the first level (hats, shoes)",
        "folders of one name under several others are different classes: red (hats/red, shoes/red)",
    ]


def test_the_level_that_is_the_class_can_be_said(shop):
    paint(shop / "hats" / "loose.png")
    data = Folder(shop, levels=2)
    assert data.label_names == ["hats/blue", "hats/red", "shoes/high", "shoes/low", "shoes/red"]
    assert data.annotations.labels["level_1"].tolist() == [0] * 4 + [1] * 6
    assert data.annotations.levels == ("level_1", "level_2")
    assert data.annotations.label_names["level_2"] == data.label_names  # red hats are no red shoes
    assert "hats/loose.png" in data.describe()["notes"][1]
    with pytest.raises(ValueError, match=r"2 classes .*hats, shoes.*at least 4"):
        Folder(shop, levels=2, class_level=1)
    with pytest.raises(ValueError, match=r"class_level must be 1 to data\.levels=2, got 3"):
        Folder(shop, levels=2, class_level=3)


def test_one_folder_inside_each_class_is_part_of_its_name(root):
    for name in ("ant", "bee", "cat", "dog", "elk"):
        (root / name / "images").mkdir()
        for path in (root / name).glob("*.*"):
            path.rename(root / name / "images" / path.name)
    assert data_table(str(root)) == {"name": "folder", "root": str(root)}
    names = ["ant", "bee", "cat", "dog", "elk"]
    assert Folder(root, levels=1).label_names == names
    assert Folder(root).label_names == [f"{name}/images" for name in names]
