"""Every event that a journal keeps has one type; what does not fit is said, never guessed."""

import json
import zlib
from pathlib import Path

import pytest

from unseen.training import events, journal

STORED = Path(__file__).parents[1] / "data_of_0_1"
LINES = [  # as they stand in journals
    '{"event": "start", "epoch": -1, "step": 0, "train": {"recall@1": 0.5}, '
    '"validation": {"recall@1": 0.25, "map_at_r": 0.125}, "best": true}',
    '{"event": "step", "step": 1, "epoch": 0, "terms": {"total": 0.5, "gradient_norm": 2.0}, '
    '"images_per_second": 90.5}',
    '{"event": "epoch", "epoch": 0, "step": 3, "train": {"loss": 0.5, "recall@1": 1.0}, '
    '"lr": 0.001, "seconds": 0.17, "images_per_second": 140.0, "validation": {"recall@1": 0.5}, '
    '"test": {"recall@1": 0.25}, "layers": {"train": {"pooled": 0.5}}, "best": false}',
    '{"event": "warning", "step": 3, "text": "epoch 1: all embeddings are alike"}',
    '{"event": "unreadable", "path": "a.jpg", "reason": "cut off"}',
    '{"event": "stopped_early", "epochs": 4, "best": 1}',
    '{"event": "refit", "epochs": 2, "train_classes": 12, "train_items": 48, "steps": 3}',
    '{"event": "rung", "name": "last", "start": "head", "epochs": 2, "steps": 3}',
    '{"event": "rung_end", "name": "last", "over": "head", "recall": 0.5, "gain": 0.1, '
    '"low": -0.1, "high": 0.3, "error": 0.05, "kept": true}',
    '{"event": "clock", "what": "epochs of whole after 3", "decided": 7}',
]


def test_every_kind_is_written_as_it_was_read() -> None:
    assert {json.loads(line)["event"] for line in LINES} == set(events.KINDS)
    read = journal.parsed("".join(line + "\n" for line in LINES).encode())
    assert [type(event) for event in read] == list(events.KINDS.values())
    assert journal.text_of(read).splitlines() == LINES


@pytest.mark.parametrize("run", ["pictures", "features"])
def test_a_journal_of_version_0_1_is_read_whole(run: str) -> None:
    path = STORED / run / "journal.jsonl"
    read = journal.read(path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        events.spelled(event) for event in read
    ]
    assert sum(isinstance(event, events.Epoch) for event in read) == 2


def with_checksum(line: str) -> str:
    return f'{line[:-1]}, "crc": {zlib.crc32(line.encode())}}}\n'


def test_an_event_of_a_newer_version_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(with_checksum(LINES[1]) + with_checksum('{"event": "dream", "depth": 2}'))
    told = r"journal\.jsonl, line 2: unseen \S+ knows no event 'dream'. .*update unseen"
    with pytest.raises(events.UnknownEventError, match=told):
        journal.read(path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"event": "stepp"}', "knows no event 'stepp'"),  # no checksum: nobody can tell them apart
        ('{"event": "warning", "step": 1}', r"warning\.text: Field required"),
        ('{"event": "warning", "step": "1", "text": ""}', r"warning\.step: .*integer"),
        ('{"event": "start", "mood": 1}', r"start\.mood: Unexpected"),
        ('["event"]', "no event"),
    ],
)
def test_a_line_that_does_not_fit_is_damaged(line: str, told: str) -> None:
    with pytest.raises(ValueError, match=rf"journal\.jsonl, line 1, is damaged \(.*{told}") as what:
        journal.parsed(f"{line}\n".encode())
    assert "\n" not in str(what.value)
