"""The manifest has types and a version: what comes later is refused by every door."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unseen
from unseen.reports import stored_run
from unseen.runs.prepare import reopen
from unseen.runs.trained_run import Trained
from unseen.training.manifest import VERSION, Data, DataMetadata, SplitMetadata, StoredItems, parsed
from unseen.training.run_folder import RunFolder


def test_a_new_manifest_comes_back_and_has_the_version(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    about = Data(DataMetadata("glyphs"), SplitMetadata("5b117"), StoredItems(3, "abc"))
    folder.start_manifest("unseen train", about, "c0ffee")
    folder.note_custom_components({"mine:Loss": {"sha256": "ab"}})
    folder.note_end()
    read = folder.manifest()
    assert (read.version, read.unseen) == (VERSION, unseen.__version__)
    assert (read.data, read.finished, read.event_log_bytes) == (about, True, 0)
    assert json.loads(folder.file("manifest.json").read_text()) == read.spelled()


DOORS: dict[str, Callable[[Path], Any]] = {
    "report": stored_run.read,
    "evaluate": reopen,
    "search": Trained.open,
    "resume": lambda path: RunFolder(path).is_finished,
}


@pytest.mark.parametrize("door", DOORS)
def test_a_folder_of_a_later_version_is_refused(
    door: str, finished_run: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished_run, tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    place = tmp_path / "run" / "manifest.json"
    later = {"version": VERSION + 1, "unseen": "9.0", "mood": "bright"}
    place.write_text(json.dumps(json.loads(place.read_text()) | later))
    with pytest.raises(ValueError, match=r"written by unseen 9\.0, .*update unseen"):
        DOORS[door](tmp_path / "run")


def test_what_no_run_leaves_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^manifest\.json is damaged \(finished: .*boolean\): put"
    ):
        parsed('{"finished": "yes", "version": 2}', "manifest.json")
    for text in ("{}", '{"version": 1}', '{"version": "2"}'):
        with pytest.raises(ValueError, match=r"^manifest\.json is damaged \(version: .*\): put"):
            parsed(text, "manifest.json")
