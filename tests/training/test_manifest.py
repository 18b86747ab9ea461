"""The manifest has types and a version: 0.1 is read, what comes later refused by every door."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unseen
from unseen.experiment.run_context import reopen
from unseen.experiment.trained import Trained
from unseen.reports import stored_run
from unseen.training.manifest import VERSION, Data, DataFacts, SplitFacts, StoredItems, parsed
from unseen.training.run_folder import RunFolder

STORED = Path(__file__).parents[1] / "data_of_0_1"


@pytest.mark.parametrize("run", ["pictures", "features"])
def test_a_manifest_of_version_0_1_keeps_all_it_says(run: str) -> None:
    text = (STORED / run / "manifest.json").read_text()
    read = parsed(text, "manifest.json")
    assert (read.version, read.data.items, read.finished) == (1, None, True)
    assert read.spelled() == json.loads(text) | {"version": 1}


def test_a_new_manifest_comes_back_and_has_the_version(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    about = Data(DataFacts("glyphs"), SplitFacts("5b117"), StoredItems(3, "abc"))
    folder.start_manifest("unseen train", about, "c0ffee")
    folder.note_parts({"mine:Loss": {"sha256": "ab"}})
    folder.note_end()
    read = folder.manifest()
    assert (read.version, read.unseen) == (VERSION, unseen.__version__)
    assert (read.data, read.finished, read.journal_bytes) == (about, True, 0)
    assert json.loads(folder.file("manifest.json").read_text()) == read.spelled()


DOORS: dict[str, Callable[[Path], Any]] = {
    "report": stored_run.read,
    "evaluate": reopen,
    "search": Trained.open,
    "resume": lambda path: RunFolder(path).is_finished,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_folder_of_a_later_version_is_refused(door: str, tmp_path: Path) -> None:
    shutil.copytree(STORED / "features", tmp_path / "run")
    place = tmp_path / "run" / "manifest.json"
    later = {"version": VERSION + 1, "unseen": "9.0", "mood": "bright"}
    place.write_text(json.dumps(json.loads(place.read_text()) | later))
    with pytest.raises(ValueError, match=r"written by unseen 9\.0, .*update unseen"):
        DOORS[door](tmp_path / "run")


def test_what_no_run_leaves_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^manifest\.json is damaged \(finished: .*boolean\): put"
    ):
        parsed('{"finished": "yes"}', "manifest.json")
