"""Scores and selection of a run have types: what 0.1 wrote is read, what does not fit is a line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unseen.experiment.run_context import reopen
from unseen.experiment.trained import Trained
from unseen.reports import stored_run
from unseen.training.result import Result, note_reading, read_result, result_of
from unseen.training.run_folder import RunFolder
from unseen.training.selection import (
    ChainLink,
    Descriptor,
    Ladder,
    Refit,
    RungScore,
    Selection,
    read_selection,
    write_selection,
)
from unseen.training.stored import parsed, spelled

STORED = Path(__file__).parents[1] / "data_of_0_1"
FILES: dict[str, Callable[[Path], Any]] = {
    "result.json": stored_run.read,
    "selection.json": lambda path: read_selection(RunFolder(path)),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(STORED / "features", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("run", ["pictures", "features"])
def test_the_files_of_version_0_1_keep_all_they_say(run: str) -> None:
    for kind, name in ((Result, "result.json"), (Selection, "selection.json")):
        text = (STORED / run / name).read_text()
        assert spelled(parsed(kind, text, name)) == json.loads(text)


def test_a_result_is_read_by_its_fields() -> None:
    found = read_result(RunFolder(STORED / "features"))
    score = found.score("trained", "recall@1")
    assert score is not None
    assert (score.value, score.low, score.high) == (0.104167, 0.041146, 0.208333)
    assert found.score("trained", "nmi") is found.score("pixels", "recall@1") is None
    assert (found.data.features, found.split.test_classes) == (8, 12)
    assert vars(found.data)["largest class"] == 4, "further counts of a data set"
    assert (found.verdict, found.start_title) == (None, "untrained network")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"scores": 1, "on": 2}', '{"seed": 0}'])
def test_a_damaged_file_is_one_line_that_says_what_to_do(name: str, text: str, run: Path) -> None:
    (run / name).write_text(text)
    with pytest.raises(
        ValueError, match=rf"{name} is damaged \(.*\): delete it; .*given again"
    ) as e:
        FILES[name](run)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", FILES)
def test_what_a_later_version_has_written_is_refused(name: str, run: Path) -> None:
    later = json.loads((run / name).read_text()) | {"mood": "bright"}
    (run / name).write_text(json.dumps(later))
    with pytest.raises(ValueError, match=rf"{name}: unseen .* knows no mood\..*update unseen"):
        FILES[name](run)


def test_a_selection_comes_back_with_all_it_may_hold(tmp_path: Path) -> None:
    rung = RungScore(
        "last", "last", 0, 2, "margin", None, [], 0.5, True, "head", 0.1, 0.0, 0.2, 0.1
    )
    whole = Selection(
        "validation",
        "recall@1",
        epoch=-1,
        value=0.5,
        classes=4,
        mean_of_epochs=3,
        stopped_after=7,
        descriptor=Descriptor("best", "stage2", "validation", {"stage2": 0.5}),
        refit=Refit(3, 10, 40),
        ladder=Ladder("last", [ChainLink("head", 1), ChainLink("last", 1)], 4, [rung]),
    )
    write_selection(RunFolder(tmp_path), whole)
    assert read_selection(RunFolder(tmp_path)) == whole
    written = json.loads((tmp_path / "selection.json").read_text())
    assert "kept" not in written, "what is not known has no key"
    assert written["ladder"]["rungs"][0]["picture_size"] is None


def test_readings_are_results_that_say_what_for(run: Path) -> None:
    final = read_result(RunFolder(run))
    (run / "result.json").unlink()
    note_reading(RunFolder(run), "unseen evaluate", final)
    note_reading(RunFolder(run), "unseen evaluate --on x", final, on="x")
    found = result_of(run)
    assert found is not None
    assert (found.scores, found.purpose, found.on) == (final.scores, "unseen evaluate", None)
    (run / "readings" / "003-cut.json").write_text('{"scores": {')
    assert result_of(run) == found


def test_a_run_of_version_0_1_opens_by_every_door(run: Path) -> None:
    assert Trained.open(run).descriptor == "embedding"
    assert stored_run.read(run).result == read_result(RunFolder(run))
    with pytest.raises((ValueError, FileNotFoundError)):  # its data are elsewhere
        reopen(run)
