"""Scores and selection of a run have types: what does not fit is a line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unseen.reports import stored_run
from unseen.runs.prepare import reopen
from unseen.runs.trained_run import Trained
from unseen.training.json_files import parsed, spelled
from unseen.training.result import Result, note_reading, read_result, result_of
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import (
    ChainLink,
    Descriptor,
    Refit,
    Selection,
    StageLog,
    StageScore,
    read_selection,
    write_selection,
)

FILES: dict[str, Callable[[Path], Any]] = {
    "result.json": stored_run.read,
    "selection.json": lambda path: read_selection(RunFolder(path)),
}


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """Whose files may be changed."""
    shutil.copytree(finished_run, tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    return tmp_path / "run"


def test_what_is_read_has_all_that_was_written(run: Path) -> None:
    for kind, name in ((Result, "result.json"), (Selection, "selection.json")):
        text = (run / name).read_text()
        assert spelled(parsed(kind, text, name)) == json.loads(text)


def test_a_result_is_read_by_its_fields(run: Path) -> None:
    result, stored = read_result(RunFolder(run)), json.loads((run / "result.json").read_text())
    score = result.score("trained", "recall@1")
    assert score is not None
    written = stored["scores"]["trained"]["metrics"]["recall@1"]
    assert (score.value, score.low, score.high) == tuple(
        written[k] for k in ("value", "low", "high")
    )
    assert result.score("trained", "nmi") is result.score("features", "recall@1") is None
    assert (result.data.features, result.split.test_classes) == (None, 6)
    assert vars(result.data)["largest class"] == stored["data"]["largest class"], "further counts"
    assert result.conclusion is not None
    assert result.start_title == "untrained network"


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
    stage = StageScore(
        "last",
        "last",
        0,
        2,
        "margin",
        "small_conv",
        None,
        [],
        0.5,
        True,
        "head",
        0.1,
        0.0,
        0.2,
        0.1,
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
        stages=StageLog("last", [ChainLink("head", 1), ChainLink("last", 1)], 4, [stage]),
    )
    write_selection(RunFolder(tmp_path), whole)
    assert read_selection(RunFolder(tmp_path)) == whole
    written = json.loads((tmp_path / "selection.json").read_text())
    assert "fallback" not in written, "what is not known has no key"
    assert written["stages"]["stages"][0]["image_size"] is None


def test_readings_are_results_that_say_what_for(run: Path) -> None:
    final = read_result(RunFolder(run))
    (run / "result.json").unlink()
    note_reading(RunFolder(run), "unseen evaluate", final)
    note_reading(RunFolder(run), "unseen evaluate run --on x", final, on="x")
    result = result_of(run)
    assert result is not None
    assert (result.scores, result.purpose, result.on) == (final.scores, "unseen evaluate", None)
    (run / "readings" / "003-cut.json").write_text('{"scores": {')
    assert result_of(run) == result


def test_a_run_opens_by_every_door(run: Path) -> None:
    assert Trained.open(run).descriptor == "embedding"
    assert stored_run.read(run).result == read_result(RunFolder(run))
    assert reopen(run)[1].path == run
