"""One file of many images, already small: read at a multiple of the rate of separate files.

    header   magic, length, JSON (what the copy was made of and how)
    records  one per item: position, width, height, length, CRC-32, SHA-256 of the source file, then
             the pixels
    index    an .npz: where each record lies, labels, names, digests
    trailer  place and length of the index, its SHA-256, magic

Pixels are raw 8-bit RGB (`quality` None), mapped into memory and never decoded, or JPEGs, about
twelve times smaller and a third of the speed. While it is written the file is called `*.part`; the
same call again checks the records that are there and goes on after the last whole one. The index
comes last, under the final name: a file with that name is whole.
"""

import hashlib
import io
import json
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count as counting
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.core import read_limits
from unseen.core.contracts import (
    Annotations,
    Dataset,
    FiledDataset,
    OpeningDataset,
    Progress,
    annotations_of,
    item_ids_of,
)
from unseen.core.files import Lock, flush_folder
from unseen.core.names import by_front_end
from unseen.core.uris import Place
from unseen.data.base import INCOMPLETE, lacking
from unseen.data.containers import locations
from unseen.data.images import crops, duplicates
from unseen.data.images.decode import UnreadableImageError
from unseen.data.images.prefetch import prefetch

MAGIC = b"UNSEENP1"
_RECORD = struct.Struct("<4sIIIII32s")  # mark, position, width, height, length, CRC-32, SHA-256
_MARK = b"PICT"
_TRAILER = struct.Struct("<QQ32s8s")
_LENGTH = struct.Struct("<I")
_ROOM = 1.1  # of the estimate that must be free on the disk
_SAMPLED = 25  # images that are looked at for the estimate
_EXTRA, _MEANING = "further/", "meaning/"  # label columns beyond the class, and their words
_ANNOTATED = ("validation_classes", "query", "gallery", "ignore_groups", "label_sets")
_WORDS = ("levels", "set_names")


class Record(NamedTuple):
    """An item of a pack; `length` 0: it could not be read and is left out."""

    position: int
    width: int
    height: int
    length: int
    crc: int
    digest: bytes
    offset: int = 0


@dataclass(frozen=True)
class Packing:
    """What a copy is made of and how. quality: of the JPEGs, None for raw pixels."""

    dataset: Dataset
    short_side: int = 256
    quality: int | None = None

    def __post_init__(self) -> None:
        if self.short_side < 8:
            raise ValueError(f"short_side must be at least 8, got {self.short_side}")
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise ValueError(f"quality must be between 1 and 100, got {self.quality}")

    def header(self) -> dict[str, Any]:
        return {
            "items": len(self.dataset),
            "name": self.dataset.name,
            "quality": self.quality,
            "short_side": self.short_side,
            "source": self.dataset.fingerprint(),
        } | lacking(self.dataset.describe().get(INCOMPLETE, ""))

    def estimate(self) -> dict[str, int]:
        """Bytes of a raw copy and of a JPEG copy at quality 90, from a few images."""
        every = np.linspace(0, len(self.dataset) - 1, num=min(_SAMPLED, len(self.dataset)))
        raw = jpeg = count = 0
        for index in every.astype(int).tolist():
            try:
                pixels = self.pixels(index)
            except UnreadableImageError:
                continue
            raw, jpeg, count = raw + pixels.nbytes, jpeg + len(_as_jpeg(pixels, 90)), count + 1
        factor = len(self.dataset) / max(1, count)
        return {"raw": round(raw * factor), "jpeg": round(jpeg * factor)}

    def pixels(self, index: int) -> crops.Pixels:
        """The image with its short side reduced to `short_side`, or as it is if smaller."""
        dataset = self.dataset
        if isinstance(dataset, OpeningDataset):
            result = dataset.opened(index)
        else:
            result = crops.as_image(dataset.image(index))
        with result as image:
            width, height = image.size
            size = image.size
            if min(size) > self.short_side:
                size = crops.with_short_side(width, height, self.short_side)
            return crops.cut(image, crops.Crop((0, 0, width, height), size))

    def encoded(self, index: int) -> tuple[Record, bytes]:
        """An item, and its bytes in the file."""
        try:
            pixels = self.pixels(index)
        except UnreadableImageError:
            return Record(index, 0, 0, 0, 0, bytes(32)), b""
        height, width = pixels.shape[:2]
        payload = pixels.tobytes() if self.quality is None else _as_jpeg(pixels, self.quality)
        dataset = self.dataset
        path = dataset.path(index) if isinstance(dataset, FiledDataset) else None
        source = hashlib.sha256(payload).digest() if path is None else _digest(path)
        return Record(index, width, height, len(payload), zlib.crc32(payload), source), payload


def _digest(place: Place) -> bytes:
    if isinstance(place, str):
        return hashlib.sha256(locations.read(place)).digest()
    return duplicates.digest(place)


@dataclass(frozen=True)
class Outcome:
    """What came of packing."""

    path: Path
    num_bytes: int
    items: int
    left_out: list[str] = field(default_factory=list)


def write(
    packing: Packing, out: Path, workers: int = 2, progress: Progress | None = None
) -> Outcome:
    """Packs into `out`, or goes on with it; one process at a time."""
    with Lock(out.with_name(f".{out.name}.lock"), of=out):
        return _write(packing, out, workers, progress)


def _write(packing: Packing, out: Path, workers: int, progress: Progress | None) -> Outcome:
    header = packing.header()
    if out.exists():
        if is_pack(out) and Pack(out).header == header:
            return Outcome(out, out.stat().st_size, len(Pack(out).records))
        raise ValueError(
            f"{out} exists and is another file: choose another {by_front_end('--out', 'out')}"
        )
    unfinished = out.with_name(out.name + ".part")
    done = _taken_up(unfinished, header)
    if not done:
        _refuse_full_disk(packing, out)
    records = list(done)
    with unfinished.open("ab") as file:
        if not file.tell():
            text = json.dumps(header, sort_keys=True).encode()
            file.write(MAGIC + _LENGTH.pack(len(text)) + text)
        rest = range(len(done), len(packing.dataset))
        for record, payload in prefetch(packing.encoded, rest, max(1, workers), 32):
            file.write(_RECORD.pack(_MARK, *record[:-1]))
            records.append(record._replace(offset=file.tell()))
            file.write(payload)
            if progress is not None:
                progress(len(records), len(packing.dataset))
        _finish(file, packing.dataset, records)
    os.replace(unfinished, out)
    flush_folder(out.parent)
    ids = item_ids_of(packing.dataset)
    left_out = [ids[record.position] for record in records if not record.length]
    return Outcome(out, out.stat().st_size, len(records) - len(left_out), left_out)


def _taken_up(unfinished: Path, header: dict[str, Any]) -> list[Record]:
    """The whole records of a copy that was stopped; what follows them is cut off."""
    records: list[Record] = []
    if unfinished.is_symlink():  # none that this function has left
        unfinished.unlink()
    if unfinished.exists():
        with unfinished.open("rb") as file:
            if _read_header(file) == header:
                records = list(_whole_records(file))
    with unfinished.open("ab"):
        os.truncate(unfinished, records[-1].offset + records[-1].length if records else 0)
    return records


def _whole_records(file: BinaryIO) -> Iterator[Record]:
    for expected in counting():
        head = file.read(_RECORD.size)
        if len(head) != _RECORD.size:
            return
        mark, *fields = _RECORD.unpack(head)
        record = Record(*fields)._replace(offset=file.tell())
        if mark != _MARK or record.position != expected:
            return
        payload = file.read(record.length)
        if len(payload) != record.length or zlib.crc32(payload) != record.crc:
            return
        yield record


def _finish(file: BinaryIO, dataset: Dataset, records: list[Record]) -> None:
    """The index of what could be read, and the trailer."""
    readable = [record for record in records if record.length]
    items = np.array([record.position for record in readable], dtype=np.int64)
    if not readable:
        raise ValueError("none of the images can be read: there is nothing to pack")
    annotations, ids = annotations_of(dataset), item_ids_of(dataset)
    arrays: dict[str, Any] = {
        "records": np.array([(*record[:5], record.offset) for record in readable], np.int64),
        "labels": dataset.labels[items],
        "label_names": np.array([str(name) for name in dataset.label_names]),
        "names": np.array([ids[i] for i in items]),
        "digests": np.frombuffer(b"".join(r.digest for r in readable), np.uint8).reshape(-1, 32),
    }
    if dataset.official_test_classes is not None:
        arrays["test_classes"] = dataset.official_test_classes
    for key in _ANNOTATED:
        if (column := getattr(annotations, key)) is not None:
            arrays[key] = column if key == "validation_classes" else column[items]
    arrays |= {key: np.array(words) for key in _WORDS if (words := list(getattr(annotations, key)))}
    arrays |= {_EXTRA + name: column[items] for name, column in annotations.labels.items()}
    arrays |= {
        _MEANING + name: np.array(list(words)) for name, words in annotations.label_names.items()
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    index = buffer.getvalue()
    place = file.tell()
    file.write(index + _TRAILER.pack(place, len(index), hashlib.sha256(index).digest(), MAGIC))
    file.flush()
    os.fsync(file.fileno())


class Pack:
    """A whole packed file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            header = _read_header(file)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TRAILER.size))
            tail = file.read()
            if header is None or len(tail) != _TRAILER.size:
                raise ValueError(f"{path} is not a packed copy of images")
            place, length, digest, magic = _TRAILER.unpack(tail)
            if magic != MAGIC or place + length + _TRAILER.size != size:
                raise ValueError(f"{path} is cut off: pack again, `unseen data pack`")
            file.seek(place)
            index = file.read(length)
        if hashlib.sha256(index).digest() != digest:
            raise ValueError(f"{path} is damaged: the checksum of its index differs")
        self.header, self.index_digest = header, digest
        try:  # a checksum says that the index is whole, not who wrote it
            with read_limits.load(io.BytesIO(index), path) as arrays:
                self.arrays: dict[str, NDArray[Any]] = dict(arrays)
            _refuse_forged(header, self.arrays, place)
        except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is no packed copy that can be used: {error}") from error
        self.records = self.arrays["records"]
        # copy on write: pixels may be called writable, and the file stays as it is
        self._bytes = np.memmap(path, np.uint8, "c")
        self._is_checked = np.zeros(len(self.records), dtype=bool)

    def annotations(self) -> Annotations:
        own: dict[str, Any] = {key: self.arrays[key] for key in _ANNOTATED if key in self.arrays}
        own |= {key: self.arrays[key].tolist() for key in _WORDS if key in self.arrays}
        meanings = {name: words.tolist() for name, words in self._beginning(_MEANING).items()}
        return Annotations(**own, labels=self._beginning(_EXTRA), label_names=meanings)

    def _beginning(self, head: str) -> dict[str, NDArray[Any]]:
        result = {key: array for key, array in self.arrays.items() if key.startswith(head)}
        return {key.removeprefix(head): array for key, array in result.items()}

    def payload(self, index: int) -> NDArray[np.uint8]:
        """The bytes of an item; its checksum is compared the first time."""
        _, _, _, length, crc, offset = self.records[index].tolist()
        result = self._bytes[offset : offset + length]
        if not self._is_checked[index]:
            if zlib.crc32(result.data) != crc:
                raise UnreadableImageError(self.name(index), "damaged: its checksum differs")
            self._is_checked[index] = True
        return result

    def size(self, index: int) -> crops.Size:
        return int(self.records[index, 1]), int(self.records[index, 2])

    def name(self, index: int) -> str:
        return f"{self.path}: {self.arrays['names'][index]}"

    @property
    def is_raw(self) -> bool:
        return self.header["quality"] is None


def _refuse_forged(header: dict[str, Any], arrays: dict[str, NDArray[Any]], end: int) -> None:
    """Whether everything an index must have is there and fits together; `end`: of the records."""

    def require(right: Any, what: str) -> None:
        if not right:
            raise ValueError(f"its {what} cannot be right")

    records, labels, items = arrays["records"], arrays["labels"], len(arrays["names"])
    classes = len(arrays["label_names"])
    require(records.shape == (items, 6) and records.dtype == np.int64, "records")
    _, width, height, length, _, offset = records.T
    require(((records >= 0) & (records < 2**48)).all(), "records")
    require(((width > 0) & (height > 0) & (length > 0)).all(), "sizes")
    require((offset + length <= end).all(), "places")
    if header["quality"] is None:
        require((width * height * 3 == length).all(), "sizes")
    require(int(header["short_side"]) > 0 and isinstance(header["name"], str), "header")
    require(arrays["digests"].shape == (items, 32), "digests")
    named = {"labels": (labels, classes)}
    for key in (key for key in arrays if key.startswith(_EXTRA)):
        words = arrays[_MEANING + key.removeprefix(_EXTRA)]
        named[key] = (arrays[key], len(words))
    for key, (column, number) in named.items():
        require(column.shape == (items,) and column.dtype.kind == "i", key)
        require(((column >= 0) & (column < number)).all(), key)
    for key in ("test_classes", "validation_classes"):
        some = arrays.get(key, np.zeros(0, np.int64))
        require(some.dtype.kind == "i" and np.isin(some, np.arange(classes)).all(), key)
    for key in ("query", "gallery", "ignore_groups"):
        require(key not in arrays or arrays[key].shape == (items,), key)
    known = [key.removeprefix(_EXTRA) for key in arrays if key.startswith(_EXTRA)]
    require(np.isin(arrays.get("levels", np.zeros(0, str)), known).all(), "levels")
    if (sets := arrays.get("label_sets")) is not None:
        number = len(arrays["set_names"])
        require(sets.ndim == 2 and len(sets) == items and sets.dtype.kind == "i", "label_sets")
        require(((sets >= -1) & (sets < number)).all(), "label_sets")


def is_pack(path: Path) -> bool:
    """Whether a file begins like a packed copy."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _read_header(file: BinaryIO) -> dict[str, Any] | None:
    start = file.read(len(MAGIC) + _LENGTH.size)
    if len(start) < len(MAGIC) + _LENGTH.size or not start.startswith(MAGIC):
        return None
    (length,) = _LENGTH.unpack(start[len(MAGIC) :])
    try:
        header: dict[str, Any] = json.loads(file.read(min(length, 1 << 16)))
    except ValueError:
        return None
    return header if isinstance(header, dict) else None


def _as_jpeg(pixels: crops.Pixels, quality: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _refuse_full_disk(packing: Packing, out: Path) -> None:
    needed = packing.estimate()["raw" if packing.quality is None else "jpeg"]
    free = shutil.disk_usage(out.parent).free
    if needed * _ROOM > free:
        raise OSError(
            f"the packed copy needs about {needed / 1e9:.1f} GB where {free / 1e9:.1f} GB are "
            f"free, in {out.parent}: pack as JPEG ({by_front_end('--jpeg 90', 'quality=90')}) or "
            f"smaller ({by_front_end('--short-side', 'short_side')})"
        )
