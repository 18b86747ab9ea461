"""Small files that are not as they were written are named, whenever a process dies."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.faults.injection import cut, flip, lose
from unseen.reports import stored_run as reports
from unseen.training import checksums, event_log
from unseen.training.event_log import EventLog
from unseen.training.events import Start, Step, Warned
from unseen.training.manifest import Data
from unseen.training.result import Result, note_reading, result_of
from unseen.training.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.write_json("result.json", {"scores": {}})
    made.write_text("config.toml", "seed = 1\n")
    made.write_arrays("embeddings/test.npz", labels=np.arange(3))
    return made


@pytest.mark.parametrize("name", ["result.json", "config.toml", "embeddings/test.npz"])
@pytest.mark.parametrize("harm", [flip, cut, lose])
def test_damage_is_named_with_what_to_do(folder: RunFolder, name: str, harm: object) -> None:
    assert folder.holds(name)
    assert callable(harm)
    harm(folder.file(name))
    assert not folder.holds(name)
    with pytest.raises(
        ValueError, match=rf"{name} is (damaged|missing).*: (the command|put a copy)"
    ):
        folder.checked(name)


def test_every_bit_of_a_score_counts(folder: RunFolder) -> None:
    size = folder.file("result.json").stat().st_size
    for place in range(0, size, 3):
        flip(folder.file("result.json"), place, place % 8)
        with pytest.raises(ValueError, match="is damaged"):
            result_of(folder.path)
        flip(folder.file("result.json"), place, place % 8)
    assert result_of(folder.path) == Result({})


def test_a_crash_before_the_rename_leaves_the_old_file_whole(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def dies(source: Path, target: Path) -> None:
        if Path(target).name != checksums.NAME:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as crash:
        crash.setattr(os, "replace", dies)
        for turn in range(3):  # again and again
            with pytest.raises(KeyboardInterrupt):
                folder.write_json("result.json", {"turn": turn})
            with pytest.raises(KeyboardInterrupt):
                folder.write_json("new.json", {"turn": turn})
    assert folder.read_json("result.json") == {"scores": {}}
    assert not checksums.must_exist(folder.path, "new.json")
    folder.write_json("result.json", {"turn": 3})
    assert folder.read_json("result.json") == {"turn": 3}
    assert checksums.must_exist(folder.path, "result.json")


def test_what_is_damaged_is_not_called_whole_by_the_next_write(folder: RunFolder) -> None:
    flip(folder.file("result.json"))
    checksums.expect(folder.path, "result.json", "0" * 64)
    assert not folder.holds("result.json")


def test_a_damaged_list_is_named_and_a_missing_one_compares_nothing(folder: RunFolder) -> None:
    flip(folder.file(checksums.NAME), 40)
    with pytest.raises(ValueError, match=r"checksums\.json is damaged: delete it"):
        folder.read_json("result.json")
    lose(folder.file(checksums.NAME))
    assert folder.read_json("result.json") == {"scores": {}}


def test_readings_are_compared(folder: RunFolder) -> None:
    made = RunFolder(folder.path / "stopped")
    note_reading(made, "unseen evaluate", Result({}))
    [reading] = made.path.glob("readings/*.json")
    flip(reading, 5)
    with pytest.raises(ValueError, match=r"unseen_evaluate\.json is damaged"):
        result_of(made.path)


def test_a_report_needs_the_config_that_was_there(folder: RunFolder) -> None:
    event_log.append(folder.file("events.jsonl"), Start())
    lose(folder.file("config.toml"))
    with pytest.raises(ValueError, match=r"config\.toml is missing"):
        reports.read(folder.path)


def test_the_event_log_of_a_finished_run_cannot_be_cut_in_silence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    event_log.append(folder.file("events.jsonl"), Start())
    event_log.append(folder.file("events.jsonl"), Step(1, 0, {"total": 0.5}, 90.0))
    folder.start_manifest("test", Data(), "hash")
    folder.note_end()
    assert len(reports.read(folder.path).steps) == 1
    cut(folder.file("events.jsonl"), 0.6)
    with pytest.raises(ValueError, match=r"events\.jsonl is cut short"):
        reports.read(folder.path)


def test_a_manifest_that_is_no_text_any_more_is_left_to_who_needs_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.start_manifest("test", Data(), "hash")
    place = folder.file("manifest.json")
    place.write_bytes(place.read_bytes()[:-1] + b"\xe5")
    folder.refuse_later_version()
    with pytest.raises(ValueError, match=r"manifest\.json is damaged"):
        folder.manifest()


def test_a_flipped_bit_in_the_event_log_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write = EventLog(path)
    write(Warned(1, "low"))
    write(Warned(2, "lower"))
    write.close()
    assert event_log.read(path) == [Warned(1, "low"), Warned(2, "lower")]
    for place in range(path.stat().st_size - 1):
        flip(path, place)
        with pytest.raises(ValueError, match=r"events\.jsonl, line [12], is damaged"):
            event_log.read(path)
        flip(path, place)


def test_a_line_without_its_checksum_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "start"}\n')
    event_log.append(path, Warned(1, "low"))
    with pytest.raises(ValueError, match=r"events\.jsonl, line 1, is damaged"):
        event_log.read(path)
