"""A segment: some rows of an index, written once and never changed.

    vectors.npy     float32 [n, D]
    rows.npy        int64 [n, 4]: serial number, id, where its line and its thumbnail begin
    pictures.jsonl  one line per picture: path, label, state of the file
    thumbnails.bin  WebP pictures one after the other

An id belongs to a picture for ever; a serial number to one row: a picture that changed gets a new
row under its old id. Serial numbers rise from row to row and from segment to segment.
"""

import io
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.files import flush_folder, sha256, write_bytes
from unseen.search.manifest import SegmentEntry

FOLDER = "segments"
SERIAL, ID, LINE, THUMBNAIL = range(4)

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Facts:
    """What an index knows of a picture beside its vector."""

    path: str
    label: str | None
    num_bytes: int  # of the file, and when it was changed: tells whether it is still the same
    modified: int  # nanoseconds


@dataclass(frozen=True)
class NewPicture:
    """A picture on its way into the index. `id` None: it gets a new one."""

    facts: Facts
    vector: NDArray[np.float32]  # [D]
    thumbnail: bytes
    id: int | None = None


class Segment:
    """The rows of one folder, mapped into memory. Reading needs no further opening of files."""

    def __init__(self, index: Path, entry: SegmentEntry) -> None:
        self.folder, self.entry = index / FOLDER / entry.name, entry
        self.vectors: NDArray[np.float32] = self._array("vectors.npy")
        self.rows: Rows = self._array("rows.npy")
        self.alive = np.ones(entry.rows, dtype=bool)
        if entry.dead is not None:
            self.alive[np.load(self.folder / entry.dead)] = False
        self._lines = _mapped(self.folder / "pictures.jsonl")
        self._thumbnails = _mapped(self.folder / "thumbnails.bin")

    def facts(self, row: int) -> Facts:
        return Facts(**json.loads(self._slice(self._lines, row, LINE)))

    def thumbnail(self, row: int) -> bytes:
        return self._slice(self._thumbnails, row, THUMBNAIL)

    def every_facts(self) -> list[Facts]:
        """Of all rows, dead ones too."""
        return [Facts(**json.loads(line)) for line in self._lines.tobytes().splitlines()]

    def _slice(self, content: NDArray[np.uint8], row: int, column: int) -> bytes:
        starts = self.rows[row : row + 2, column]
        end = int(starts[1]) if len(starts) > 1 else len(content)
        return content[int(starts[0]) : end].tobytes()

    def _array(self, name: str) -> Any:
        # copy on write: torch refuses to look at what it may not write to
        return np.load(self.folder / name, mmap_mode="c")


def write(
    index: Path, name: str, pictures: Sequence[NewPicture], ids: Sequence[int], first_serial: int
) -> SegmentEntry:
    """A new segment, whole on the disk before anybody hears of it."""
    lines = [json.dumps(asdict(p.facts), ensure_ascii=False).encode() + b"\n" for p in pictures]
    rows = np.stack(
        [
            np.arange(first_serial, first_serial + len(pictures)),
            np.asarray(ids, dtype=np.int64),
            _starts(lines),
            _starts([p.thumbnail for p in pictures]),
        ],
        axis=1,
    )
    vectors = np.stack([p.vector for p in pictures]).astype(np.float32)
    return _write(index, name, vectors, rows, b"".join(lines), [p.thumbnail for p in pictures])


def merge(index: Path, name: str, segments: Sequence[Segment]) -> SegmentEntry:
    """The live rows of some segments as one; damage is found here, not copied."""
    for segment in segments:
        check(segment.folder, segment.entry.files)
    live = [(s, int(row)) for s in segments for row in np.flatnonzero(s.alive)]
    lines = [s._slice(s._lines, row, LINE) for s, row in live]
    thumbnails = [s.thumbnail(row) for s, row in live]
    rows = np.concatenate([s.rows[s.alive] for s in segments])
    rows[:, LINE], rows[:, THUMBNAIL] = _starts(lines), _starts(thumbnails)
    vectors = np.concatenate([s.vectors[s.alive] for s in segments])
    return _write(index, name, vectors, rows, b"".join(lines), thumbnails)


def bury(index: Path, entry: SegmentEntry, dead: Rows, generation: int) -> SegmentEntry:
    """The segment with these rows, and those already dead, no longer counting."""
    folder = index / FOLDER / entry.name
    name = f"dead-{generation:08d}.npy"
    digest = write_bytes(folder / name, _npy(np.sort(dead)))
    flush_folder(folder)
    files = {file: sha for file, sha in entry.files.items() if file != entry.dead}
    changes = {"files": files | {name: digest}, "dead": name, "num_dead": len(dead)}
    return entry.model_copy(update=changes)


def check(folder: Path, files: dict[str, str]) -> None:
    """Raises ValueError for a file that is missing or not as it was written."""
    for name, digest in files.items():
        path = folder / name
        if not path.exists():
            raise ValueError(f"{path} is missing")
        if sha256(path) != digest:
            raise ValueError(f"{path} is damaged: its checksum does not match")


def _write(
    index: Path,
    name: str,
    vectors: NDArray[np.float32],
    rows: Rows,
    lines: bytes,
    thumbnails: list[bytes],
) -> SegmentEntry:
    place = index / FOLDER / name
    aside = place.with_name(f"{name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    contents = {
        "vectors.npy": _npy(vectors),
        "rows.npy": _npy(rows),
        "pictures.jsonl": lines,
        "thumbnails.bin": b"".join(thumbnails),
    }
    files = {file: write_bytes(aside / file, content) for file, content in contents.items()}
    flush_folder(aside)
    os.replace(aside, place)
    flush_folder(place.parent)
    return SegmentEntry(name=name, rows=len(rows), files=files)


def _starts(parts: Sequence[bytes]) -> Rows:
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts: Rows = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return starts


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _mapped(path: Path) -> NDArray[np.uint8]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.uint8)
    return np.memmap(path, dtype=np.uint8, mode="r")
