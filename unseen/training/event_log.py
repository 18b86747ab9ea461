"""The event log: one JSON object per line, flushed as it happens."""

import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unseen.training.events import LoggedEvent, UnknownEventError, event_of, spelled

_SUMMED = re.compile(rb'(\{.*), "crc": (\d+)\}', re.DOTALL)


class EventLog:
    """Appends events to a file after its first `keep` bytes: a resumed run cuts the rest. writes:
    False for all but the first of several processes, whose events are not kept.

    The event log: one JSON object per line, flushed as it happens: a crash loses at most one line.
    Each line ends with a checksum of its other keys, `crc`.

    Everybody reads it here; `events` has the events.
    """

    def __init__(self, path: Path, keep: int = 0, writes: bool = True) -> None:
        if writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a"):
                os.truncate(path, min(keep, path.stat().st_size))
        self._stream = (path if writes else Path(os.devnull)).open("a")

    def __call__(self, event: LoggedEvent) -> None:
        self._stream.write(text_of([event]))
        self._stream.flush()

    def size(self) -> int:
        """Bytes written so far."""
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()


def append(path: Path, event: LoggedEvent) -> None:
    """One more event at the end of an event log, in the place of a line that was cut off."""
    content = path.read_bytes() if path.exists() else b""
    event_log = EventLog(path, keep=content.rfind(b"\n") + 1)
    event_log(event)
    event_log.close()


def text_of(events: Iterable[LoggedEvent]) -> str:
    """Some events as an event log of their own."""
    return "".join(summed(spelled(event)) for event in events)


def summed(content: Mapping[str, Any]) -> str:
    """A line with its checksum."""
    line = json.dumps(content)
    return f'{line[:-1]}, "crc": {zlib.crc32(line.encode())}}}\n'


def read(path: Path, size: int | None = None) -> list[LoggedEvent]:
    """All events. A last line that was cut off by a crash is left out; any other damage is an error
    that names its line, as is an event that only a newer version knows. size: in bytes, of a run
    that came to its end; a shorter file is an error."""
    content = path.read_bytes() if path.exists() else b""
    if path.exists() and len(content) < (size or 0):
        raise ValueError(f"{path} is cut short: put a copy of it back, or delete it")
    return parsed(content, str(path))


def parsed(content: bytes, name: str = "events.jsonl") -> list[LoggedEvent]:
    """The events of an event log's content."""
    *lines, _ = content.split(b"\n")
    return [_event(line, name, number) for number, line in enumerate(lines, start=1)]


def _event(line: bytes, name: str, number: int) -> LoggedEvent:
    try:
        return event_of(json.loads(_compared(line).decode()))
    except UnknownEventError as error:
        raise UnknownEventError(
            f"{name}, line {number}: {error}. A newer version has written it: update unseen"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{name}, line {number}, is damaged ({error}): delete this line to go on without it"
        ) from None


def _compared(line: bytes) -> bytes:
    """A line without its checksum."""
    result = _SUMMED.fullmatch(line)
    content = result[1] + b"}" if result else b""
    if result is None or zlib.crc32(content) != int(result[2]):
        raise ValueError("its checksum differs")
    return content
