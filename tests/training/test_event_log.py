"""Events come back in order; a line cut by a crash is left out; a resumed run cuts back."""

from pathlib import Path

import pytest

from unseen.reports import stored_run
from unseen.training.event_log import EventLog, append, read, text_of
from unseen.training.events import Step, Warned

WHOLE = text_of([Warned(1, "low"), Warned(2, "low")])


def step(number: int) -> Step:
    return Step(number, 0, {"total": 0.5}, images_per_second=90.0)


def test_events_come_back(tmp_path: Path) -> None:
    event_log = EventLog(tmp_path / "events.jsonl")
    event_log(step(1))
    event_log(step(2))
    event_log.close()
    assert read(tmp_path / "events.jsonl") == [step(1), step(2)]


def test_a_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append(path, step(1))
    append(path, step(2))
    path.write_text(path.read_text() + '{"ste')
    assert read(path) == [step(1), step(2)]
    append(path, step(3))
    assert read(path) == [step(1), step(2), step(3)], "no half line in between"
    assert read(tmp_path / "none.jsonl") == []
    append(tmp_path / "new.jsonl", step(1))
    assert read(tmp_path / "new.jsonl") == [step(1)]


@pytest.mark.parametrize("bit", [7, 3], ids=["a high bit", "another bit"])
@pytest.mark.parametrize("line", [1, 2])
def test_any_other_damage_is_named_by_file_and_line(bit: int, line: int, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    content = bytearray(WHOLE.encode())
    content[len(content) // 2 * (line - 1) + 3] ^= 1 << bit  # in the name of the event
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"events.jsonl, line {line}, is damaged .*delete"):
        read(path)


def test_the_page_and_the_run_read_alike(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(WHOLE.encode() + b"\xff\n" + WHOLE.encode())
    with pytest.raises(ValueError, match=r"events.jsonl, line 3, is damaged"):
        stored_run.read(tmp_path)


def test_a_resumed_run_keeps_what_belongs_to_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event_log = EventLog(path)
    event_log(step(1))
    kept = event_log.size()
    event_log(step(2))
    event_log.close()
    event_log = EventLog(path, keep=kept)
    event_log(step(3))
    event_log.close()
    assert read(path) == [step(1), step(3)]
