"""Every event that an event log keeps has one type; what does not fit is said, never guessed."""

import json
import zlib
from pathlib import Path

import pytest

from unseen.training import event_log, events

LINES = [  # as they stand in event logs
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
    '{"event": "stage", "name": "last_layers", "start": "head", "epochs": 2, "steps": 3}',
    '{"event": "stage_end", "name": "last_layers", "over": "head", "recall": 0.5, "gain": 0.1, '
    '"low": -0.1, "high": 0.3, "error": 0.05, "selected": true, "ranked": 0.2, '
    '"ranked_error": 0.1}',
    '{"event": "time_budget", "training": "full", "epochs": 7, "done": 3}',
]


def test_every_kind_is_written_as_it_was_read() -> None:
    assert {json.loads(line)["event"] for line in LINES} == set(events.KINDS)
    lines = [with_checksum(line) for line in LINES]
    read = event_log.parsed("".join(lines).encode())
    assert [type(event) for event in read] == list(events.KINDS.values())
    assert event_log.text_of(read) == "".join(lines)


def with_checksum(line: str) -> str:
    return f'{line[:-1]}, "crc": {zlib.crc32(line.encode())}}}\n'


def test_an_event_of_a_newer_version_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(with_checksum(LINES[1]) + with_checksum('{"event": "dream", "depth": 2}'))
    message = r"events\.jsonl, line 2: unseen \S+ knows no event 'dream'. .*update unseen"
    with pytest.raises(events.UnknownEventError, match=message):
        event_log.read(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"event": }', "Expecting value"),
        ('{"event": "warning", "step": 1}', r"warning\.text: Field required"),
        ('{"event": "warning", "step": "1", "text": ""}', r"warning\.step: .*integer"),
        ('{"event": "start", "mood": 1}', r"start\.mood: Unexpected"),
        ("{}", "no event"),
    ],
)
def test_a_line_that_does_not_fit_is_damaged(line: str, message: str) -> None:
    with pytest.raises(
        ValueError, match=rf"events\.jsonl, line 1, is damaged \(.*{message}"
    ) as what:
        event_log.parsed(with_checksum(line).encode())
    assert "\n" not in str(what.value)
