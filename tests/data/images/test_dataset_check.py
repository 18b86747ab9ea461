"""Each kind of trouble is put into a file and found again."""

import csv
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.images.dataset_check import Survey, survey, write_list
from unseen.data.images.image_check import inspect


def scene(seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3)).astype(np.uint8))
    return coarse.resize((120, 90), Image.Resampling.BICUBIC)


def save(path: Path, kind: str) -> Path:
    """A file with one trouble."""
    exif = Image.Exif()
    exif[0x0112] = 6 if kind == "turned" else 0
    scene(1).save(path, exif=exif)
    content = path.read_bytes()
    if kind == "cmyk":
        scene(1).convert("CMYK").save(path)
    elif kind == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "not_image":
        path.write_text("not an image")
    elif kind == "missing":
        path.unlink()
    elif kind == "tiny":
        scene(1).resize((20, 90)).save(path)
    elif kind == "disguised":
        scene(1).save(path, "PNG")
    return path


@pytest.mark.parametrize(
    "kind",
    ["cmyk", "truncated", "empty", "not_image", "missing", "tiny", "disguised", "turned", "none"],
)
def test_each_trouble_is_named(tmp_path: Path, kind: str) -> None:
    finding = inspect(save(tmp_path / "x.jpg", kind))
    assert finding.problems == (() if kind == "none" else (kind,))
    assert finding.is_usable == (kind in ("cmyk", "tiny", "disguised", "turned", "none"))
    if kind == "turned":
        assert finding.size == (90, 120)


def test_animations_deep_images_and_bombs(tmp_path: Path) -> None:
    scene(1).save(tmp_path / "x.gif", save_all=True, append_images=[scene(2)])
    assert inspect(tmp_path / "x.gif").problems == ("animated",)
    scene(1).save(tmp_path / "one.gif")
    assert inspect(tmp_path / "one.gif").problems == ()
    Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64)).save(tmp_path / "x.png")
    assert inspect(tmp_path / "x.png").problems == ("deep",)
    Image.new("1", (8, 8)).save(tmp_path / "x.bmp")
    content = bytearray((tmp_path / "x.bmp").read_bytes())
    content[18:26] = struct.pack("<ii", 10_000, 10_000)
    (tmp_path / "x.bmp").write_bytes(content)
    assert inspect(tmp_path / "x.bmp").problems == ("huge",)


@pytest.fixture
def result(tmp_path: Path) -> Survey:
    """Classes a and b are trained on, c is tested; d has one image. Copies: a/0 in a, b/0 in c,
    b/1 nearly in c; a/3 is broken."""
    files: list[tuple[str, str, int | None]] = [
        *(("a", f"{k}.png", k) for k in range(3)),
        ("a", "copy.png", 0),
        ("a", "broken.png", None),
        *(("b", f"{k}.png", 10 + k) for k in range(3)),
        *(("c", f"{k}.png", 20 + k) for k in range(3)),
        ("c", "copy.png", 10),
        ("c", "near.jpg", 11),
        ("d", "0.png", 30),
    ]
    paths, labels, parts = [], [], []
    for label, name, seed in files:
        path = tmp_path / label / name
        path.parent.mkdir(exist_ok=True)
        if seed is None:
            path.write_bytes(b"GIF")
        else:
            scene(seed).save(path)
        paths.append(path)
        labels.append(label)
        parts.append({"a": "train", "b": "train", "c": "test"}.get(label, ""))
    message: list[tuple[int, int]] = []
    looks = [partial(inspect, path) for path in paths]
    result = survey(looks, labels, parts, workers=3, progress=lambda *p: message.append(p))
    assert message[-1] == (14, 14)
    return result


def names(result: Survey, groups: list[list[int]]) -> list[list[str]]:
    return [["/".join(result.findings[i].path.parts[-2:]) for i in group] for group in groups]


def test_copies_classes_and_advice(result: Survey) -> None:
    assert names(result, result.exact) == [["a/0.png", "a/copy.png"], ["b/0.png", "c/copy.png"]]
    assert names(result, result.near) == [["b/1.png", "c/near.jpg"]]
    assert names(result, result.across_parts(result.exact)) == [["b/0.png", "c/copy.png"]]
    assert result.across_classes(result.exact) == result.across_parts(result.exact)
    assert result.class_sizes == {"a": 4, "b": 3, "c": 5, "d": 1}
    assert result.histogram() == [("1", 1), ("2-3", 1), ("4-7", 2)]
    assert result.has_errors
    advice = " ".join(result.advice())
    for words in (
        "1 class has one image (d)",
        "1 files cannot be used",
        "both sides",
        "two labels",
    ):
        assert words in advice
    message = result.to_dict()
    assert (message["files"], message["usable"]) == (14, 13)
    assert message["wrong"] == {"not_image": 1}
    assert message["problems"]["not_image"][0]["path"].endswith("broken.png")


def test_the_clean_list_keeps_the_test_side_and_touches_nothing(
    result: Survey, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert write_list(result, tmp_path / "clean.csv") == 10
    with (tmp_path / "clean.csv").open() as file:
        rows = list(csv.DictReader(file))
    kept = [row["path"] for row in rows]
    assert set(rows[0]) == {"path", "label"}
    assert {"a/copy.png", "a/broken.png", "b/0.png", "b/1.png"}.isdisjoint(kept)
    assert {"a/0.png", "c/copy.png", "c/near.jpg"} <= set(kept)
    assert all(row["label"] == row["path"][0] for row in rows)
    assert all(path.read_bytes() == content for path, content in before.items())
    write_list(result, tmp_path / "split.csv", with_split=True)
    with (tmp_path / "split.csv").open() as file:
        assert {row["split"] for row in csv.DictReader(file)} == {"train", "test", ""}
