"""The journal: one JSON object per line, flushed as it happens: a crash loses at most one line.
Each line ends with a checksum of its other keys, `crc`; journals of version 0.1 have none.

Everybody reads it here; `events` has the events."""

import json
import os
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

from unseen.training.events import Kept, UnknownEventError, event_of, spelled

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

    def __call__(self, event: Kept) -> None:
        line = json.dumps(spelled(event))
        if self._sums:
            line = f'{line[:-1]}, "crc": {zlib.crc32(line.encode())}}}'
        self._stream.write(line + "\n")
        self._stream.flush()

    def size(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()


def append(path: Path, event: Kept) -> None:
    """One more event at the end of a journal, in the place of a line that was cut off."""
    content = path.read_bytes() if path.exists() else b""
    journal = Journal(path, keep=content.rfind(b"\n") + 1)
    journal(event)
    journal.close()


def text_of(events: Iterable[Kept]) -> str:
    """Some events as a journal of their own."""
    return "".join(json.dumps(spelled(event)) + "\n" for event in events)


def read(path: Path) -> list[Kept]:
    """All events. A last line that was cut off by a crash is left out; any other damage is an error
    that names its line, as is an event that only a newer version knows."""
    return parsed(path.read_bytes() if path.exists() else b"", str(path))


def parsed(content: bytes, name: str = "journal.jsonl") -> list[Kept]:
    """The events of a journal's content."""
    *lines, _ = content.split(b"\n")
    sums = any(_SUMMED.fullmatch(line) for line in lines)
    return [_event(line, name, number, sums) for number, line in enumerate(lines, start=1)]


def _event(line: bytes, name: str, number: int, sums: bool) -> Kept:
    try:
        event = json.loads((_compared(line) if sums else line).decode())
        return event_of(event if isinstance(event, dict) else {})
    except ValueError as error:
        if sums and isinstance(error, UnknownEventError):
            raise UnknownEventError(
                f"{name}, line {number}: {error}. A newer version has written it: update unseen"
            ) from None
        raise ValueError(
            f"{name}, line {number}, is damaged ({error}): delete this line to go on without it"
        ) from None


def _compared(line: bytes) -> bytes:
    """A line without its checksum."""
    found = _SUMMED.fullmatch(line)
    content = found[1] + b"}" if found else b""
    if found is None or zlib.crc32(content) != int(found[2]):
        raise ValueError("its checksum differs")
    return content
