"""Events come back in order; a line cut by a crash is left out; a resumed run cuts back."""

from pathlib import Path

import pytest

from unseen.reports import run_folder
from unseen.training.journal import Journal, append, read

WHOLE = '{"event": "step", "step": 1}\n{"event": "step", "step": 2}\n'


def test_events_come_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal({"event": "step", "step": 1})
    journal({"event": "step", "step": 2})
    journal.close()
    assert [event["step"] for event in read(tmp_path / "journal.jsonl")] == [1, 2]


def test_a_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(WHOLE + '{"ste')
    assert [event["step"] for event in read(path)] == [1, 2]
    append(path, {"event": "step", "step": 3})
    assert [event["step"] for event in read(path)] == [1, 2, 3], "no half line in between"
    assert read(tmp_path / "none.jsonl") == []
    append(tmp_path / "new.jsonl", {"event": "step"})
    assert read(tmp_path / "new.jsonl") == [{"event": "step"}]


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
        run_folder.read(tmp_path)


def test_a_resumed_run_keeps_what_belongs_to_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal({"event": "step", "step": 1})
    kept = journal.size()
    journal({"event": "step", "step": 2})
    journal.close()
    journal = Journal(path, keep=kept)
    journal({"event": "step", "step": 3})
    journal.close()
    assert [event["step"] for event in read(path)] == [1, 3]
