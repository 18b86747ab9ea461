"""A run knows its items: stored when it starts, found again by name, refused when they are others.
Runs of version 0.1, which stored none, are known by the fingerprint of their data."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import nn

from unseen import config as configs
from unseen.cli import main
from unseen.contracts import IntArray
from unseen.data.arrays import Arrays
from unseen.data.folder import Folder
from unseen.data.own.given import as_dataset
from unseen.experiment.items import items_of, read_items
from unseen.experiment.judge import judge
from unseen.experiment.run import train_and_judge
from unseen.experiment.run_context import RunContext, Watch, prepare, reopen
from unseen.experiment.trained import Trained
from unseen.networks import small_conv
from unseen.training.manifest import Data
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder
from unseen.training.selection import read_selection

STORED = Path(__file__).parents[1] / "data_of_0_1"
TINY = ["epochs=1", "embedding_size=8", "workers=0", 'metrics=["recall@1"]']


class Drawn:
    """A data set of one's own: features, and nothing by which items could be known."""

    name = "drawn"
    official_test_classes: IntArray | None = None

    def __init__(self, shift: float = 0.0) -> None:
        self.labels = np.repeat(np.arange(8), 4)
        self.label_names = [f"c{c}" for c in range(8)]
        self.features = np.random.default_rng(0).normal(size=(32, 6)) + shift

    def __len__(self) -> int:
        return 32

    def picture(self, index: int) -> Image.Image:
        raise ValueError("none")

    def describe(self) -> dict[str, Any]:
        return {"items": 32, "classes": 8}

    def fingerprint(self) -> str:
        return f"{self.features.sum()}"


def own_run(path: Path) -> RunContext:
    context = prepare(configs.make(configs.override({}, TINY)), dataset=Drawn())
    train_and_judge(context, path, "test")
    return context


def told_by(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main.run()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_data_from_python_have_no_name_and_the_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = own_run(tmp_path / "run")
    assert 'name = "object:' in (tmp_path / "run" / "config.toml").read_text()
    result = (tmp_path / "run" / "result.json").read_bytes()
    code, errors = told_by(capsys, "evaluate", tmp_path / "run")
    assert code == 2
    assert "given from Python" in errors
    assert "--data PATH" in errors
    assert (tmp_path / "run" / "result.json").read_bytes() == result
    again, folder = reopen(tmp_path / "run", dataset=Drawn())
    found = judge(again, folder, read_selection(folder), "once more", Watch())
    assert found.scores == read_result(folder).scores
    with pytest.raises(ValueError, match=r"32 of other content \(item 0, item 1, item 2 and 29 mo"):
        reopen(tmp_path / "run", dataset=Drawn(shift=1.0))
    assert Trained.open(tmp_path / "run").config == context.config


def test_features_given_from_python_are_found_in_a_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(32, 6)), np.repeat(np.arange(8), 4)
    context = prepare(configs.make(configs.override({}, TINY)), dataset=as_dataset(values))
    train_and_judge(context, tmp_path / "run", "test")
    np.savez(tmp_path / "mine.npz", features=values[0], labels=values[1])
    found, _ = reopen(tmp_path / "run", data=str(tmp_path / "mine.npz"))
    np.testing.assert_array_equal(found.split.test, context.split.test)


def test_items_come_back_as_they_were_stored(tmp_path: Path) -> None:
    labels = np.repeat([f"c{c}" for c in range(8)], 4)
    features = np.random.default_rng(0).normal(size=(32, 6))
    more = {"groups": np.arange(32) % 3, "label_colour": np.where(np.arange(32) % 2, "a", "b")}
    more |= {"is_query": np.arange(32) % 4 < 2, "is_gallery": np.arange(32) % 4 > 1}
    more |= {"level_1": np.arange(32) // 8, "label_sets": np.array(["a|b", "c"] * 16)}
    np.savez(tmp_path / "x.npz", features=features, labels=labels, **more)
    dataset = Arrays(tmp_path / "x.npz")
    config = configs.make({"data": {"name": "arrays", "root": str(tmp_path / "x.npz")}})
    split = prepare(config).split
    kept, folder = items_of(dataset, split), RunFolder(tmp_path / "run")
    folder.start_manifest("test", Data(items=kept.write(folder)), "hash")
    found = read_items(folder)
    assert found is not None
    assert found.hash() == kept.hash()
    assert found.found_in(dataset) is dataset
    np.testing.assert_array_equal(found.split.test, split.test)
    np.testing.assert_array_equal(found.annotations.ignore_groups, more["groups"])
    assert found.annotations.label_names["colour"] == ["a", "b"]
    assert found.annotations.levels == ("level_1",)
    assert found.annotations.set_names == ("a", "b", "c")
    np.testing.assert_array_equal(found.annotations.label_sets, [[0, 1], [2, -1]] * 16)
    order = np.random.default_rng(1).permutation(32)
    shuffled = {name: column[order] for name, column in more.items()}
    np.savez(tmp_path / "y.npz", features=features[order], labels=labels[order], **shuffled)
    assert found.changes(Arrays(tmp_path / "y.npz")).any_lost  # rows are known by their number
    damaged = bytearray(folder.file("items.npz").read_bytes())
    damaged[200] ^= 1
    folder.file("items.npz").write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="its checksum is not the manifest's"):
        read_items(folder)
    folder.file("items.npz").unlink()
    with pytest.raises(ValueError, match="is missing"):
        read_items(folder)


def test_chosen_items_are_those_of_the_run_in_every_form(tmp_path: Path) -> None:
    """Pictures, files, labels and groups, although the data set has grown and its labels moved."""
    for c in range(8):
        for i in range(3):
            path = tmp_path / "photos" / f"class {c}" / f"{i}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (30 * c, 80 * i, 7)).save(path)
    before = Folder(tmp_path / "photos")
    was = before.fingerprint()
    split = prepare(configs.make({"data": {"name": "folder", "root": str(before.root)}})).split
    kept = items_of(before, split)
    for name in ("a first", "class 3b"):
        shutil.copytree(tmp_path / "photos" / "class 0", tmp_path / "photos" / name)
    after = Folder(tmp_path / "photos")
    changes = kept.changes(after)
    assert not changes.any_lost
    assert len(changes.added) == 6
    found = kept.found_in(after)
    assert len(after) == 30
    assert len(found) == 24
    assert found.fingerprint() == was != after.fingerprint()
    assert found.item_ids() == before.item_ids()  # type: ignore[attr-defined]
    assert found.digests() == before.digests()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found.labels, before.labels)
    for index in (0, 7, 17):
        assert found.path(index) == before.path(index)  # type: ignore[attr-defined]
        assert found.picture(index).tobytes() == before.picture(index).tobytes()
        with found.opened(index) as opened:  # type: ignore[attr-defined]
            assert opened.size == (8, 8)


def pictures(root: Path) -> Path:
    """What the stored run of version 0.1 was trained on."""
    y, x = np.mgrid[:16, :16]
    for c in range(24):
        (root / f"class {c:02}").mkdir(parents=True)
        for i in range(4):
            wave = (5 * x + 11 * y + 29 * i) * (1 + c % 3) % 61
            levels = [(37 * c * (k + 1) + wave) % 256 for k in range(3)]
            picture = Image.fromarray(np.stack(levels, axis=2).astype(np.uint8))
            picture.save(root / f"class {c:02}" / f"{i}.bmp")
    return root


def features(file: Path) -> Path:
    label, item = np.repeat(np.arange(24), 4), np.arange(96)
    rows = [((label * 37 * (k + 1) + (item * 29 * (k + 3)) % 61) % 101) / 101 for k in range(8)]
    np.savez(file, features=np.stack(rows, axis=1).astype(np.float32), labels=label)
    return file


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of version 0.1 in `pictures_run` and `features_run`, beside their data; the network had
    an eighth of its channels."""
    monkeypatch.setattr(small_conv.SmallConv, "num_features", 32)
    monkeypatch.setattr(small_conv, "_norm", lambda channels: nn.GroupNorm(4, channels))
    monkeypatch.chdir(tmp_path)
    for name in ("pictures", "features"):
        shutil.copytree(STORED / name, tmp_path / f"{name}_run")
    pictures(tmp_path / "pictures")
    features(tmp_path / "features.npz")
    return tmp_path


@pytest.mark.parametrize("name", ["pictures", "features"])
def test_a_run_of_0_1_is_judged_on_the_items_it_had(
    old: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = old / f"{name}_run"
    result = (run / "result.json").read_bytes()
    code, errors = told_by(capsys, "evaluate", run)
    assert code == 0, errors
    assert (run / "result.json").read_bytes() == result
    [reading] = run.glob("readings/*.json")
    was, is_now = json.loads(result), json.loads(reading.read_text())
    assert is_now["scores"]["trained"]["metrics"] == was["scores"]["trained"]["metrics"]
    assert is_now["split"] == was["split"]
    code, errors = told_by(capsys, "report", run)
    assert code == 0, errors


def test_pictures_are_indexed_and_found_by_a_run_of_0_1(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = sorted((old / "pictures").rglob("*.bmp"))[:12]
    code, errors = told_by(capsys, "index", "build", "pictures_run", *some, "--out", "my.index")
    assert code == 0, errors
    main.app(["search", "my.index", str(some[5]), "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["hits"][0]["path"] == str(some[5])


def test_pictures_of_a_run_of_0_1_are_indexed(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [old / "pictures_run", old / "pictures", "--out", old / "index"]
    code, errors = told_by(capsys, "index", "build", *words)
    assert code == 0, errors


def test_a_run_of_0_1_on_changed_data_is_refused(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(old / "pictures" / "class 03", old / "pictures" / "class 03b")
    code, errors = told_by(capsys, "evaluate", old / "pictures_run")
    assert code == 2
    assert "96 items then, 100 now" in errors
    assert "train again" in errors
    assert not (old / "pictures_run" / "readings").exists()
