"""Wherever images lie, they are the same images: folders, tables, Parquet, Arrow, tars, COCO,
addresses. Each is recognised by its content, and read from the middle without being unpacked."""

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

from tests.data import formats
from unseen.config import find_data
from unseen.config import schema as configs
from unseen.config.tables import Component
from unseen.core import uris
from unseen.data.coco import Coco
from unseen.data.containers import locations, tar_shard
from unseen.data.containers.contained import Webdataset, shards
from unseen.data.images.dataset_check import write_list
from unseen.data.images.loader import evaluation_batches
from unseen.data.table import Table
from unseen.runs.check_data import checked
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate

CLASSES, EACH = 8, 3
pytestmark = pytest.mark.usefixtures("memory_uris")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Eight classes of three images, JPEG and PNG, of a colour and a slope each."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "photos"
    ramp = np.linspace(-1, 1, 24)
    for c in range(CLASSES):
        (folder / f"class {c}").mkdir(parents=True)
        color = generator.uniform(60, 200, 3)
        for i in range(EACH):
            noise = generator.normal(0, 20, (24, 20 + i, 3)) + 30 * ramp[:, None, None]
            pixels = np.clip(color + noise, 0, 255).astype(np.uint8)
            suffix = "png" if i % 2 else "jpg"
            Image.fromarray(pixels).save(folder / f"class {c}" / f"{i}.{suffix}")
    return folder


def opened(word: str) -> Any:
    return find_data.open_data(Component(**find_data.data_table(word)))


def written(name: str, root: Path, tmp_path: Path) -> str:
    return formats.FORMATS[name](root, tmp_path / name)


@pytest.mark.parametrize("name", [n for n in formats.FORMATS if n != "folder"])
def test_a_format_holds_what_the_folder_holds(name: str, root: Path, tmp_path: Path) -> None:
    word = written(name, root, tmp_path)
    assert find_data.data_table(word)["name"] == ("folder" if name == "memory" else name)
    plain, other = opened(str(root)), opened(word)
    assert other.item_ids() == plain.item_ids()
    assert other.labels.tolist() == plain.labels.tolist()
    assert list(other.label_names) == list(plain.label_names)
    assert other.digests() == plain.digests()
    assert other.fingerprint() == plain.fingerprint()
    for index in (0, 7, 23):
        assert np.array_equal(np.asarray(other.image(index)), np.asarray(plain.image(index)))
    result = checked(other, None)
    assert (len(result.usable), result.has_errors) == (24, False)
    assert find_data.open_data(Component(**find_data.data_table(word))).fingerprint() == (
        plain.fingerprint()
    ), "what was kept in the cache says the same"


@pytest.mark.slow
@pytest.mark.usefixtures("narrow_network")
@pytest.mark.parametrize("name", [n for n in formats.FORMATS if n != "folder"])
def test_a_format_gives_the_scores_of_the_folder(name: str, root: Path, tmp_path: Path) -> None:
    plain = scores(str(root), tmp_path / "plain")
    assert scores(written(name, root, tmp_path), tmp_path / "run") == plain


@pytest.mark.usefixtures("narrow_network")
def test_tars_give_the_scores_of_the_folder(root: Path, tmp_path: Path) -> None:
    plain = scores(str(root), tmp_path / "plain")
    assert scores(formats.webdataset(root, tmp_path / "tars"), tmp_path / "run") == plain


def scores(word: str, out: Path) -> Any:
    settings = ["batch_size=8", "embedding_size=8", "epochs=1", "workers=0", "sampler.steps=2"]
    settings += [
        "image_size=32",
        "transform=small",
        "backbone=small_conv",
        'metrics=["recall@1"]',
    ]
    values: dict[str, Any] = {"data": find_data.data_table(word)}
    result = train_and_evaluate(
        prepare(configs.make(configs.override(values, settings))), out, "test"
    )
    return result.scores


def test_what_datasets_saves(root: Path, tmp_path: Path) -> None:
    word = formats.datasets(root, tmp_path / "saved")
    assert find_data.data_table(word)["name"] == "hugging_face"
    assert_same_content(opened(word), opened(str(root)))


def assert_same_content(data: Any, plain: Any) -> None:
    """`datasets` keeps the last part of a path: where these repeat, items are known by row."""
    assert data.digests() == plain.digests()
    assert data.labels.tolist() == plain.labels.tolist()
    assert list(data.label_names) == list(plain.label_names)


def test_datasets_by_name(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets as library

    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", str(tmp_path / "hub"))
    word = formats.parquet(root, tmp_path / "named")
    assert_same_content(opened(f"hf:{word}"), opened(str(root)))


def test_without_datasets_a_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ValueError, match=r"hf:food101 needs datasets: .*formats"):
        opened("hf:food101")


def test_a_tar_is_walked_through_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = formats.webdataset(root, tmp_path / "tars")
    first = opened(word)
    locations._container.cache_clear()
    monkeypatch.setattr(tar_shard.tarfile, "open", pytest.fail)
    again = opened(word)
    batch = next(
        iter(evaluation_batches(again, np.array([20, 3]), lambda p, _: grey(p), 2, workers=0))
    )
    pair = [grey(first.opened(index)) for index in (20, 3)]
    assert batch.images.tolist() == [one.tolist() for one in pair], "any two, without unpacking"


def grey(image: Any) -> Any:
    import torch

    return torch.tensor(image.pixels().mean())[None, None, None]


def test_what_stands_beside_a_image_in_a_tar(root: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for row, (_, label, content) in enumerate(formats.listed(root)):
            part = "train" if row < 12 else "test"
            message = {"species": label, "split": part, "camera": row % 3, "more": [1, 2]}
            formats.add(tar, f"{row:03d}.jpg", content)
            formats.add(tar, f"{row:03d}.json", json.dumps(message).encode())
    data = Webdataset(tmp_path / "a.tar", label="species")
    assert list(data.label_names) == [f"class {c}" for c in range(CLASSES)]
    assert data.official_test_classes is not None
    assert data.official_test_classes.tolist() == [4, 5, 6, 7]
    assert list(data.annotations.labels) == ["camera"]
    with pytest.raises(ValueError, match=r"no column 'label' for label.*data.label=COLUMN"):
        Webdataset(tmp_path / "a.tar")


def test_patterns_of_tars(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"train-{number:03d}.tar").touch()
    assert shards(tmp_path / "train-{008..010}.tar") == [
        tmp_path / f"train-{number:03d}.tar" for number in (8, 9, 10)
    ]
    assert len(shards(tmp_path / "train-*.tar")) == 12
    with pytest.raises(FileNotFoundError, match="no tars are found"):
        shards(tmp_path / "test-*.tar")


def test_a_compressed_tar_is_refused(root: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w:gz") as tar:
        tar.add(root, "photos")
    with pytest.raises(ValueError, match=r"no whole, plain tar.*unpack it"):
        Webdataset(tmp_path / "a.tar")


def test_a_damaged_image_in_a_tar_is_left_out_and_named(root: Path, tmp_path: Path) -> None:
    (root / "class 1" / "1.png").write_bytes(b"no image")
    data = opened(formats.webdataset(root, tmp_path / "tars"))
    assert len(data) == 23
    assert data.describe()["unreadable files"] == 1
    assert "000.tar::class 1/1.png (not an image)" in data.describe()["unreadable"][0]
    result = checked(data, None)
    assert [f.problems for f in result.findings if not f.is_usable] == [("not_image",)]
    write_list(result, tmp_path / "clean.csv")
    clean = Table(tmp_path / "clean.csv")
    assert clean.item_ids() == data.item_ids()
    assert clean.digests() == data.digests()


def test_boxes_of_coco(tmp_path: Path) -> None:
    pixels = np.zeros((40, 60, 3), dtype=np.uint8)
    pixels[:, 30:] = 200
    (tmp_path / "val").mkdir()
    Image.fromarray(pixels).save(tmp_path / "val" / "a.png")
    kinds = [{"id": k, "name": f"kind {k}", "supercategory": f"s{k // 2}"} for k in range(4)]
    boxes = [
        {"image_id": 7, "category_id": k, "bbox": [30 * (k % 2), 5, 30, 20.4], "iscrowd": 0}
        for k in range(4)
    ]
    boxes += [{"image_id": 7, "category_id": 0, "bbox": [0, 0, 60, 40]}]
    boxes += [{"image_id": 7, "category_id": 0, "bbox": [1, 1, 9, 9], "iscrowd": 1}]
    boxes += [{"image_id": 7, "category_id": 0, "bbox": [1, 1, 0.2, 9]}]
    images = [{"id": 7, "file_name": "a.png", "width": 60, "height": 40}]
    (tmp_path / "annotations").mkdir()
    file = tmp_path / "annotations" / "instances_val.json"
    file.write_text(json.dumps({"images": images, "annotations": boxes, "categories": kinds}))
    data = Coco(file)
    assert data.labels.tolist() == [0, 1, 2, 3, 0]
    assert data.box(1) == (30, 5, 60, 25)
    assert data.box(4) is None, "the whole image"
    assert np.asarray(data.image(1)).min() == 200
    assert data.item_ids()[0] == "a.png [0,5,30,25]"
    assert data.describe()["notes"] == ["left out, groups and empty boxes: 2"]
    assert list(data.annotations.label_names["supercategory"]) == ["s0", "s1"]
    shutil.move(tmp_path / "val", tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match=r"a.png of .*data.images=FOLDER"):
        Coco(file)
    assert len(Coco(file, images=str(tmp_path / "elsewhere"))) == 5


def test_parts_of_parquet_that_share_classes_are_put_together(root: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    whole, out = formats.image_table(root), tmp_path / "parts"
    out.mkdir()
    for name, rows in (("train", range(0, 24, 2)), ("test", range(1, 24, 2))):
        parquet.write_table(whole.take(list(rows)), out / f"{name}-0.parquet")
    data = opened(str(out))
    assert len(data) == 24
    assert data.official_test_classes is None
    assert "put together and divided by class" in data.describe()["notes"][0]
    for name, rows in (("train", slice(0, 12)), ("test", slice(12, 24))):
        parquet.write_table(whole[rows], out / f"{name}-0.parquet")
    assert opened(str(out)).official_test_classes.tolist() == [4, 5, 6, 7]


def test_a_table_at_an_address_and_of_addresses(root: Path, tmp_path: Path) -> None:
    place = formats.memory(root, tmp_path / "bucket")
    formats.table(root, tmp_path)
    store = fsspec.filesystem("memory")
    store.pipe_file("/bucket/images.csv", (root / "images.csv").read_bytes())
    plain = opened(str(root / "images.csv"))
    assert opened(f"{place}/images.csv").fingerprint() == plain.fingerprint()
    lines = [f"{place}/{name},{label}" for name, label, _ in formats.listed(root)]
    (tmp_path / "far.csv").write_text("\n".join(["path,label", *lines]))
    with uris.remote_rows():
        far = Table(tmp_path / "far.csv")
    assert far.digests() == plain.digests()
    assert far.item_ids()[0] == f"{place}/class 0/0.jpg"


def test_what_lies_elsewhere_is_read_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = formats.memory(root, tmp_path / "far")
    for name, _, _content in formats.listed(root):  # an hour ago: young files are not believed
        held = fsspec.filesystem("memory").store[f"/far/{name}"]
        held.created = held.created.replace(year=2020)
    first = opened(word).fingerprint()
    monkeypatch.setattr(locations, "read", pytest.fail)
    assert opened(word).fingerprint() == first


@pytest.mark.parametrize("word", ["nosuch://bucket/photos", "s3://bucket/photos"])
def test_an_address_that_nobody_can_open_is_one_sentence(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(ValueError, match=f"{word} cannot be opened: "):
        find_data.data_table(word)


def test_writing_at_an_address(tmp_path: Path) -> None:
    for place in ("memory://vectors/a.bin", tmp_path / "a.bin"):
        uris.write(place, b"abcdef")
        assert uris.read(place, 2, 4) == b"cd"
        assert uris.state(place).num_bytes == 6
    for place in ("memory://vectors/b.bin", tmp_path / "b.bin"):
        assert not uris.exists(place)
        with pytest.raises(FileNotFoundError):
            uris.read(place)


def test_a_file_may_have_colons_in_its_name(root: Path) -> None:
    os.rename(root / "class 0" / "0.jpg", root / "class 0" / "a::b.jpg")
    assert opened(str(root)).item_ids()[2] == "class 0/a::b.jpg"
