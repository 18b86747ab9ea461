"""A segment: some rows of an index, written once and never changed.

    vectors.npy     float32 [n, D]
    rows.npy        int64 [n, 4]: serial number, id, where its line and its thumbnail begin
    images.jsonl  one line per image: path, label, state of the file
    thumbnails.bin  WebP images one after the other

An id belongs to an image for ever; a serial number to one row: an image that changed gets a new
row under its old id. Serial numbers rise from row to row and from segment to segment.

Vectors are mapped into memory, the rest is read; each file is compared with its checksum when it is
first looked into, once in a process. A map of a file that somebody cuts kills the process that
looks at it (SIGBUS), so whoever looks asks `require_whole` first.
"""

import hashlib
import io
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from unseen.core import read_limits
from unseen.core.files import CHUNK, flush_folder, new_folder, sha256, write_bytes
from unseen.data.images.boxes import mark
from unseen.search.manifest import DamagedError, ModelEntry, SegmentEntry

FOLDER = "segments"
VECTORS = "vectors.npy"
SERIAL, ID, LINE, THUMBNAIL = range(4)
LONGEST = 1.001  # a unit vector, rounded
DIFFERS = "its checksum does not match"
# what numpy raises for bytes that are no array; other errors are not of the file
NO_ARRAY = (ValueError, TypeError, SyntaxError, EOFError, OverflowError, TokenError, BadZipFile)
NO_PLACE = "its vector is not finite, or far too long"

Rows = NDArray[np.int64]
Value = str | int | float

_WHOLE: set[tuple[str, int, int, int]] = set()  # states of files that were compared


@dataclass(frozen=True)
class Metadata:
    """What an index knows of an image beside its vector."""

    path: str
    label: str | None
    num_bytes: int  # of the file, with `modified` and `mark` its state (`addresses.State`)
    modified: int  # nanoseconds
    box: tuple[int, int, int, int] | None = None  # left, top, right, bottom; None: all of it
    compatible: bool = False  # its vector comes from an older model, by a map (`upgrade.py`)
    mark: int = 0
    digest: str = ""  # SHA-256 of what was embedded; none where it changed meanwhile
    columns: Mapping[str, Value] = field(default_factory=dict)  # what else a table says of it

    @property
    def name(self) -> str:
        """The image, or the part of it: what an index holds once."""
        return self.path + mark(self.box)

    @classmethod
    def parsed(cls, line: bytes) -> "Metadata":
        metadata = from_json(line)  # several times as fast as json's
        if "box" in metadata:
            metadata["box"] = tuple(metadata["box"]) if metadata["box"] else None
        return cls(**metadata)

    def line(self) -> bytes:
        """What is not known of an image is not written."""
        metadata = asdict(self)
        for name in ("box", "compatible", "mark", "digest", "columns"):
            if not metadata[name]:
                del metadata[name]
        return json.dumps(metadata, ensure_ascii=False).encode() + b"\n"


@dataclass(frozen=True)
class NewImage:
    """An image on its way into the index. `id` None: it gets a new one."""

    metadata: Metadata
    vector: NDArray[np.float32]  # [D]
    thumbnail: bytes
    id: int | None = None


class Segment:
    """The rows of one folder. Reading needs no further opening of files."""

    def __init__(self, index: Path, entry: SegmentEntry) -> None:
        self.folder, self.entry = index / FOLDER / entry.name, entry
        self._vectors, self._lines, self._thumbnails = (
            CheckedFile(self.folder / name, entry.files[name])
            for name in (VECTORS, "images.jsonl", "thumbnails.bin")
        )
        # copy on write: torch refuses to look at what it may not write to
        self.vectors: NDArray[np.float32] = self._array(VECTORS, 2, mmap_mode="c")
        self.rows: Rows = self._array("rows.npy", 2)  # read whole, and so compared
        self.alive = np.ones(entry.rows, dtype=bool)
        if entry.dead is not None:
            try:
                self.alive[self._array(entry.dead, 1)] = False
            except IndexError as error:
                raise DamagedError(self.folder / entry.dead) from error

    def require_whole(self) -> None:
        """Raises DamagedError when the mapped file is not as it was written, or has shrunk."""
        self._vectors.require_whole()

    def metadata(self, row: int) -> Metadata:
        return self._metadata(self.line(row))

    def line(self, row: int) -> bytes:
        return self._slice(self._lines, row, LINE)

    def thumbnail(self, row: int) -> bytes:
        return self._slice(self._thumbnails, row, THUMBNAIL)

    def every_metadata(self) -> list[Metadata]:
        """Of all rows, dead ones too."""
        lines = self._lines.read(0, self._lines.size).splitlines()
        if len(lines) != self.entry.rows:
            raise DamagedError(self._lines.path)
        return [self._metadata(line) for line in lines]

    def _metadata(self, line: bytes) -> Metadata:
        try:
            return Metadata.parsed(line)
        except (ValueError, TypeError) as error:
            raise DamagedError(self._lines.path) from error

    def _slice(self, file: "CheckedFile", row: int, column: int) -> bytes:
        starts = self.rows[row : row + 2, column]
        end = int(starts[1]) if len(starts) > 1 else file.size
        return file.read(int(starts[0]), end)

    def _array(self, name: str, ndim: int, **how: Any) -> Any:
        path = self.folder / name
        try:
            if not how and sha256(path) != self.entry.files[name]:
                raise DamagedError(path, DIFFERS)
            array = read_limits.load(path, **how)
        except NO_ARRAY as error:
            if isinstance(error, DamagedError):
                raise
            why = f"it holds no array ({type(error).__name__}: {error})"
            raise DamagedError(path, why) from error
        if array.ndim != ndim or (ndim == 2 and len(array) != self.entry.rows):
            raise DamagedError(path)
        return array


class CheckedFile:
    """An open file that is read in pieces, each of them whole. digest: what its SHA-256 must be."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path, self.digest, self._file = path, digest, os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def read(self, start: int, end: int) -> bytes:
        self.require_whole()
        content = os.pread(self._file, max(0, end - start), max(0, start))
        if len(content) != end - start:
            raise DamagedError(self.path, "it is shorter than it was")
        return content

    def require_whole(self) -> None:
        result = os.fstat(self._file)
        if result.st_size < self.size:
            raise DamagedError(self.path, "it is shorter than it was")
        state = (self.digest, result.st_dev, result.st_ino, result.st_mtime_ns)
        if state not in _WHOLE:
            if self._sha256() != self.digest:
                raise DamagedError(self.path, DIFFERS)
            _WHOLE.add(state)

    def _sha256(self) -> str:
        """Of what is open: the name may be gone already."""
        result = hashlib.sha256()
        for start in range(0, self.size, CHUNK):
            result.update(os.pread(self._file, CHUNK, start))
        return result.hexdigest()


def are_places(vectors: NDArray[Any], model: ModelEntry) -> NDArray[np.bool_]:  # [n, D] -> [n]
    """Whether vectors can be searched for. One that is not finite, or lies far outside the sphere
    of the others, would be found first by every search."""
    squares = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    longest = LONGEST if model.normalize else np.sqrt(np.finfo(np.float32).max) / 4
    result: NDArray[np.bool_] = squares <= longest**2  # of NaN neither
    return result


def write(
    index: Path,
    name: str,
    images: Sequence[NewImage],
    ids: Sequence[int],
    first_serial: int,
) -> SegmentEntry:
    """A new segment, whole on the disk before anybody hears of it."""
    lines = [p.metadata.line() for p in images]
    rows = np.stack(
        [
            np.arange(first_serial, first_serial + len(images)),
            np.asarray(ids, dtype=np.int64),
            _starts(lines),
            _starts([p.thumbnail for p in images]),
        ],
        axis=1,
    )
    vectors = np.stack([p.vector for p in images]).astype(np.float32)
    return _write(index, name, vectors, rows, b"".join(lines), [p.thumbnail for p in images])


def merge(index: Path, name: str, segments: Sequence[Segment]) -> SegmentEntry:
    """The live rows of some segments as one; damage is found here, not copied."""
    for segment in segments:
        check(segment.folder, segment.entry.files)
    live = [(s, int(row)) for s in segments for row in np.flatnonzero(s.alive)]
    lines = [s.line(row) for s, row in live]
    thumbnails = [s.thumbnail(row) for s, row in live]
    rows = np.concatenate([s.rows[s.alive] for s in segments])
    rows[:, LINE], rows[:, THUMBNAIL] = _starts(lines), _starts(thumbnails)
    vectors = np.concatenate([s.vectors[s.alive] for s in segments])
    return _write(index, name, vectors, rows, b"".join(lines), thumbnails)


def bury(index: Path, entry: SegmentEntry, dead: Rows, generation: int) -> SegmentEntry:
    """The segment with these rows, and those already dead, no longer counting."""
    folder = index / FOLDER / entry.name
    name = f"dead-{generation:08d}.npy"
    new = {name: write_bytes(folder / name, _npy(np.sort(dead)))}
    flush_folder(folder)
    files = {file: sha for file, sha in entry.files.items() if file != entry.dead}
    changes = {"files": files | new, "dead": name, "num_dead": len(dead)}
    return entry.model_copy(update=changes)


def check(folder: Path, files: dict[str, str]) -> None:
    """Raises ValueError for a file that is missing or not as it was written."""
    for name, digest in files.items():
        path = folder / name
        if not path.exists():
            raise DamagedError(path, "it is missing")
        if sha256(path) != digest:
            raise DamagedError(path, DIFFERS)


def _write(
    index: Path,
    name: str,
    vectors: NDArray[np.float32],
    rows: Rows,
    lines: bytes,
    thumbnails: list[bytes],
) -> SegmentEntry:
    contents = {
        VECTORS: _npy(vectors),
        "rows.npy": _npy(rows),
        "images.jsonl": lines,
        "thumbnails.bin": b"".join(thumbnails),
    }
    with new_folder(index / FOLDER / name) as aside:
        files = {file: write_bytes(aside / file, content) for file, content in contents.items()}
    return SegmentEntry(name=name, rows=len(rows), files=files)


def _starts(contents: Sequence[bytes]) -> Rows:
    ends = np.cumsum([len(content) for content in contents], dtype=np.int64)
    starts: Rows = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return starts


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
