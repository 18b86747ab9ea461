"""The journal: one JSON object per line, flushed as it happens: a crash loses at most one line.

Everybody reads it here."""

import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """Appends events to a file after its first `keep` bytes: a resumed run cuts the rest. writes:
    False for all but the first of several processes, whose events are not kept."""

    def __init__(self, path: Path, keep: int = 0, writes: bool = True) -> None:
        if writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a"):
                os.truncate(path, min(keep, path.stat().st_size))
        self._stream = (path if writes else Path(os.devnull)).open("a")

    def __call__(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    def size(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()


def append(path: Path, event: dict[str, Any]) -> None:
    """One more event at the end of a journal, in the place of a line that was cut off."""
    content = path.read_bytes() if path.exists() else b""
    journal = Journal(path, keep=content.rfind(b"\n") + 1)
    journal(event)
    journal.close()


def read(path: Path) -> list[dict[str, Any]]:
    """All events. A last line that was cut off by a crash is left out; any other damage is an error
    that names its line."""
    *lines, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return [_event(line, path, number) for number, line in enumerate(lines, start=1)]


def _event(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        event = json.loads(line.decode())
        if isinstance(event, dict) and "event" in event:
            return event
        why = "no event"
    except ValueError as error:
        why = str(error)
    raise ValueError(
        f"{path}, line {number}, is damaged ({why}): delete this line to go on without it"
    )
