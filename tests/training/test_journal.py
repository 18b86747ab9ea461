"""Events come back in order; a line cut by a crash is left out; a resumed run cuts back."""

from pathlib import Path

from unseen.training.journal import Journal, read


def test_events_come_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal({"event": "step", "step": 1})
    journal({"event": "step", "step": 2})
    journal.close()
    assert [event["step"] for event in read(tmp_path / "journal.jsonl")] == [1, 2]


def test_a_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert [event["step"] for event in read(path)] == [1, 2]
    assert read(tmp_path / "none.jsonl") == []


def test_a_resumed_run_keeps_what_belongs_to_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal({"step": 1})
    kept = journal.size()
    journal({"step": 2})
    journal.close()
    journal = Journal(path, keep=kept)
    journal({"step": 3})
    journal.close()
    assert [event["step"] for event in read(path)] == [1, 3]
