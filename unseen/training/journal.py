"""The journal: one JSON object per line, flushed as it happens: a crash loses at most one line.
Each line ends with a checksum of its other keys, `crc`; journals of version 0.1 have none.

Everybody reads it here."""

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

_SUMMED = re.compile(rb'(\{.*), "crc": (\d+)\}', re.DOTALL)


class Journal:
    """Appends events to a file after its first `keep` bytes: a resumed run cuts the rest. writes:
    False for all but the first of several processes, whose events are not kept."""

    def __init__(self, path: Path, keep: int = 0, writes: bool = True) -> None:
        self._sums = False  # a journal is begun and continued in one way
        if writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a"):
                os.truncate(path, min(keep, path.stat().st_size))
            with path.open("rb") as file:
                first = file.readline().strip()
            self._sums = not first or bool(_SUMMED.fullmatch(first))
        self._stream = (path if writes else Path(os.devnull)).open("a")

    def __call__(self, event: dict[str, Any]) -> None:
        line = json.dumps(event)
        if self._sums:
            line = f'{line[:-1]}, "crc": {zlib.crc32(line.encode())}}}'
        self._stream.write(line + "\n")
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
    sums = any(_SUMMED.fullmatch(line) for line in lines)
    return [_event(line, path, number, sums) for number, line in enumerate(lines, start=1)]


def _event(line: bytes, path: Path, number: int, sums: bool) -> dict[str, Any]:
    try:
        if sums:
            line = _compared(line)
        event = json.loads(line.decode())
        if isinstance(event, dict) and "event" in event:
            return event
        why = "no event"
    except ValueError as error:
        why = str(error)
    raise ValueError(
        f"{path}, line {number}, is damaged ({why}): delete this line to go on without it"
    )


def _compared(line: bytes) -> bytes:
    """A line without its checksum."""
    found = _SUMMED.fullmatch(line)
    content = found[1] + b"}" if found else b""
    if found is None or zlib.crc32(content) != int(found[2]):
        raise ValueError("its checksum differs")
    return content
