"""The journal: one JSON object per line, flushed as it happens: a crash loses at most one line."""

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
    """One more event at the end of a journal."""
    journal = Journal(path, keep=path.stat().st_size if path.exists() else 0)
    journal(event)
    journal.close()


def read(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a line cut off by a crash is left out."""
    events = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return events
