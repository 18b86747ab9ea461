"""A run knows its items: stored when it starts, found again by name, refused if they are others."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.cli import main
from unseen.config import schema as configs
from unseen.core.contracts import IntArray
from unseen.data.arrays import Arrays
from unseen.data.folder import Folder
from unseen.data.in_memory.user_data import as_dataset
from unseen.runs.evaluate_run import evaluate_run
from unseen.runs.prepare import Callbacks, RunContext, prepare, reopen
from unseen.runs.run import train_and_evaluate
from unseen.runs.run_items import items_of, read_items
from unseen.runs.trained_run import Trained
from unseen.training.manifest import Data
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import read_selection

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

    def image(self, index: int) -> Image.Image:
        raise ValueError("none")

    def describe(self) -> dict[str, Any]:
        return {"items": 32, "classes": 8}

    def fingerprint(self) -> str:
        return f"{self.features.sum()}"


def own_run(path: Path) -> RunContext:
    context = prepare(configs.make(configs.override({}, TINY)), dataset=Drawn())
    train_and_evaluate(context, path, "test")
    return context


def message_by(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
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
    code, errors = message_by(capsys, "evaluate", "run", tmp_path / "run")
    assert code == 2
    assert "passed from Python" in errors
    assert "--data PATH" in errors
    assert (tmp_path / "run" / "result.json").read_bytes() == result
    again, folder = reopen(tmp_path / "run", dataset=Drawn())
    matches = evaluate_run(again, folder, read_selection(folder), "once more", Callbacks())
    assert matches.scores == read_result(folder).scores
    with pytest.raises(ValueError, match=r"32 of other content \(item 0, item 1, item 2 and 29 mo"):
        reopen(tmp_path / "run", dataset=Drawn(shift=1.0))
    assert Trained.open(tmp_path / "run").config == context.config


def test_features_given_from_python_are_found_in_a_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(32, 6)), np.repeat(np.arange(8), 4)
    context = prepare(configs.make(configs.override({}, TINY)), dataset=as_dataset(values))
    train_and_evaluate(context, tmp_path / "run", "test")
    np.savez(tmp_path / "mine.npz", features=values[0], labels=values[1])
    result, _ = reopen(tmp_path / "run", data=str(tmp_path / "mine.npz"))
    np.testing.assert_array_equal(result.split.test, context.split.test)


def test_items_come_back_as_they_were_stored(tmp_path: Path) -> None:
    labels = np.repeat([f"c{c}" for c in range(8)], 4)
    features = np.random.default_rng(0).normal(size=(32, 6))
    more = {"groups": np.arange(32) % 3, "label_color": np.where(np.arange(32) % 2, "a", "b")}
    more |= {"is_query": np.arange(32) % 4 < 2, "is_gallery": np.arange(32) % 4 > 1}
    more |= {"level_1": np.arange(32) // 8, "label_sets": np.array(["a|b", "c"] * 16)}
    np.savez(tmp_path / "x.npz", features=features, labels=labels, **more)
    dataset = Arrays(tmp_path / "x.npz")
    config = configs.make({"data": {"name": "arrays", "root": str(tmp_path / "x.npz")}})
    split = prepare(config).split
    kept, folder = items_of(dataset, split), RunFolder(tmp_path / "run")
    folder.start_manifest("test", Data(items=kept.write(folder)), "hash")
    result = read_items(folder)
    assert result.hash() == kept.hash()
    assert result.select_from(dataset) is dataset
    np.testing.assert_array_equal(result.split.test, split.test)
    np.testing.assert_array_equal(result.annotations.ignore_groups, more["groups"])
    assert result.annotations.label_names["color"] == ["a", "b"]
    assert result.annotations.levels == ("level_1",)
    assert result.annotations.set_names == ("a", "b", "c")
    np.testing.assert_array_equal(result.annotations.label_sets, [[0, 1], [2, -1]] * 16)
    order = np.random.default_rng(1).permutation(32)
    shuffled = {name: column[order] for name, column in more.items()}
    np.savez(tmp_path / "y.npz", features=features[order], labels=labels[order], **shuffled)
    assert result.changes(Arrays(tmp_path / "y.npz")).any_lost  # rows are known by their number
    damaged = bytearray(folder.file("items.npz").read_bytes())
    damaged[200] ^= 1
    folder.file("items.npz").write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="its checksum is not the manifest's"):
        read_items(folder)
    folder.file("items.npz").unlink()
    with pytest.raises(ValueError, match="is missing"):
        read_items(folder)
    folder.start_manifest("test", Data(), "hash")
    with pytest.raises(ValueError, match=r"manifest\.json is damaged \(data\.items"):
        read_items(folder)


def test_chosen_items_are_those_of_the_run_in_every_form(tmp_path: Path) -> None:
    """Images, files, labels and groups, although the data set has grown and its labels moved."""
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
    result = kept.select_from(after)
    assert len(after) == 30
    assert len(result) == 24
    assert result.fingerprint() == was != after.fingerprint()
    assert result.item_ids() == before.item_ids()  # type: ignore[attr-defined]
    assert result.digests() == before.digests()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(result.labels, before.labels)
    for index in (0, 7, 17):
        assert result.path(index) == before.path(index)  # type: ignore[attr-defined]
        assert result.image(index).tobytes() == before.image(index).tobytes()
        with result.opened(index) as opened:  # type: ignore[attr-defined]
            assert opened.size == (8, 8)
