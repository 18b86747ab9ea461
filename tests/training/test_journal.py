"""Events come back in order; a line cut by a crash is left out; a resumed run cuts back."""

from pathlib import Path

import pytest

from unseen.reports import stored_run
from unseen.training.events import Step, Warned
from unseen.training.journal import Journal, append, read

WHOLE = """\
{"event": "warning", "step": 1, "text": "low"}
{"event": "warning", "step": 2, "text": "low"}
"""


def step(number: int) -> Step:
    return Step(number, 0, {"total": 0.5}, images_per_second=90.0)


def test_events_come_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal(step(1))
    journal(step(2))
    journal.close()
    assert read(tmp_path / "journal.jsonl") == [step(1), step(2)]


def test_a_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(WHOLE + '{"ste')
    assert read(path) == [Warned(1, "low"), Warned(2, "low")]
    append(path, step(3))
    assert read(path) == [Warned(1, "low"), Warned(2, "low"), step(3)], "no half line in between"
    assert read(tmp_path / "none.jsonl") == []
    append(tmp_path / "new.jsonl", step(1))
    assert read(tmp_path / "new.jsonl") == [step(1)]


@pytest.mark.parametrize("bit", [7, 3], ids=["a high bit", "another bit"])
@pytest.mark.parametrize("line", [1, 2])
def test_any_other_damage_is_named_by_file_and_line(bit: int, line: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    content = bytearray(WHOLE.encode())
    content[len(content) // 2 * (line - 1) + 3] ^= 1 << bit  # in the name of the event
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"journal.jsonl, line {line}, is damaged .*delete"):
        read(path)


def test_the_page_and_the_run_read_alike(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(WHOLE.encode() + b"\xff\n" + WHOLE.encode())
    with pytest.raises(ValueError, match=r"journal.jsonl, line 3, is damaged"):
        stored_run.read(tmp_path)


def test_a_resumed_run_keeps_what_belongs_to_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal(step(1))
    kept = journal.size()
    journal(step(2))
    journal.close()
    journal = Journal(path, keep=kept)
    journal(step(3))
    journal.close()
    assert read(path) == [step(1), step(3)]
