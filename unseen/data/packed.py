"""`packed`: a copy of a data set in one file, made by `unseen data pack`, read at a multiple of the
rate of separate images.

    header   magic, a line of JSON: what the copy was made of and how
    records  one per item: position, width, height, length, CRC-32, SHA-256 of the source file, then
             the pixels
    index    an .npz: the header, where each record lies, and labels as `arrays` has them
    trailer  length of the index, its SHA-256, magic

Pixels are raw 8-bit RGB (`quality` None), mapped into memory and never decoded, or JPEGs, about
twelve times smaller and a third of the speed. While it is written the file is called `*.part`; the
same call again checks the records that are there and goes on after the last whole one. The index
comes last, under the final name: a file with that name is whole.

Classes, official split, queries, gallery, groups and further labels are those of the source.
Images come with their short side reduced: a crop shows the same part of an image as from the
source, small crops are softer. Each image's checksum is compared when it is first read; a damaged
one is an error that names it, and a run goes on as with any file that breaks.
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
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.core import read_limits
from unseen.core.contracts import Dataset, FiledDataset, OpeningDataset, Progress, item_ids_of
from unseen.core.files import Lock, flush_folder
from unseen.core.names import by_front_end, near_path
from unseen.core.uris import Place
from unseen.data.arrays import PER_FILE, columns_of, read_columns
from unseen.data.base import INCOMPLETE, Items
from unseen.data.containers import locations
from unseen.data.images import crops, duplicates
from unseen.data.images.crops import LazyImage, Loaded
from unseen.data.images.decode import SafeImageFile, UnreadableImageError
from unseen.data.images.item_digests import numbered
from unseen.data.images.prefetch import prefetch

MAGIC = b"UNSEENP2"
_RECORD = struct.Struct("<4sIIIII32s")  # mark, position, width, height, length, CRC-32, SHA-256
_MARK = b"PICT"
_TRAILER = struct.Struct("<Q32s8s")
_ROOM = 1.1  # of the estimate that must be free on the disk
_SAMPLED = 25  # images that are looked at for the estimate


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

    def header(self) -> str:
        values = {
            "items": len(self.dataset),
            "name": self.dataset.name,
            "quality": self.quality,
            "short_side": self.short_side,
            "source": self.dataset.fingerprint(),
        }
        return json.dumps(values, sort_keys=True)

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
            lazy = dataset.opened(index)
        else:
            lazy = crops.as_image(dataset.image(index))
        with lazy as image:
            width, height = size = image.size
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
        if Packed.recognises(out) and (made := Packed(out)).header == json.loads(header):
            return Outcome(out, out.stat().st_size, len(made))
        raise ValueError(
            f"{out} exists and is another file: choose another {by_front_end('--out', 'out')}"
        )
    unfinished = out.with_name(out.name + ".part")
    start = MAGIC + header.encode() + b"\n"
    records = _taken_up(unfinished, start)
    if not records:
        _refuse_full_disk(packing, out)
    with unfinished.open("ab") as file:
        if not file.tell():
            file.write(start)
        rest = range(len(records), len(packing.dataset))
        for record, payload in prefetch(packing.encoded, rest, max(1, workers), 32):
            records.append(_append(file, record, payload))
            if progress is not None:
                progress(len(records), len(packing.dataset))
        _finish(file, packing.dataset, header, records)
    os.replace(unfinished, out)
    flush_folder(out.parent)
    ids = item_ids_of(packing.dataset)
    left_out = [ids[record.position] for record in records if not record.length]
    return Outcome(out, out.stat().st_size, len(records) - len(left_out), left_out)


def _append(file: BinaryIO, record: Record, payload: bytes) -> Record:
    file.write(_RECORD.pack(_MARK, *record[:-1]))
    offset = file.tell()
    file.write(payload)
    return record._replace(offset=offset)


def _taken_up(unfinished: Path, start: bytes) -> list[Record]:
    """The whole records of a copy that was stopped; what follows them is cut off."""
    records: list[Record] = []
    if unfinished.is_symlink():  # none that this function has left
        unfinished.unlink()
    if unfinished.exists():
        with unfinished.open("rb") as file:
            if file.read(len(start)) == start:
                records = list(_whole_records(file))
    with unfinished.open("ab"):
        os.truncate(unfinished, records[-1].offset + records[-1].length if records else 0)
    return records


def _whole_records(file: BinaryIO) -> Iterator[Record]:
    number = 0
    while len(head := file.read(_RECORD.size)) == _RECORD.size:
        mark, *fields = _RECORD.unpack(head)
        record = Record(*fields)._replace(offset=file.tell())
        payload = file.read(record.length)
        is_whole = len(payload) == record.length and zlib.crc32(payload) == record.crc
        if mark != _MARK or record.position != number or not is_whole:
            return
        number += 1
        yield record


def _finish(file: BinaryIO, dataset: Dataset, header: str, records: list[Record]) -> None:
    """The index of what could be read, and the trailer."""
    readable = [record for record in records if record.length]
    items = np.array([record.position for record in readable], dtype=np.int64)
    if not readable:
        raise ValueError("none of the images can be read: there is nothing to pack")
    ids, columns = item_ids_of(dataset), columns_of(dataset)
    arrays: dict[str, Any] = {
        "header": np.array(header),
        "records": np.array([(*record[:5], record.offset) for record in readable], np.int64),
        "names": np.array([ids[i] for i in items]),
        "digests": np.frombuffer(b"".join(r.digest for r in readable), np.uint8).reshape(-1, 32),
    } | {key: column if key in PER_FILE else column[items] for key, column in columns.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    index = buffer.getvalue()
    file.write(index + _TRAILER.pack(len(index), hashlib.sha256(index).digest(), MAGIC))
    file.flush()
    os.fsync(file.fileno())


class Packed(Items):
    """Images in one file, decoded and made smaller beforehand by `unseen data pack`.

    Args:
        root: The file.

    Example:
        >>> from unseen.data import Packed
        >>> Packed("photos.pack").label_names  # doctest: +SKIP
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        index, end = _index_of(self.root)
        self._digest = hashlib.sha256(index).hexdigest()
        try:  # a checksum says that the index is whole, not who wrote it
            with read_limits.load(io.BytesIO(index), self.root) as loaded:
                arrays: dict[str, NDArray[Any]] = dict(loaded)
            self.header: dict[str, Any] = json.loads(str(arrays["header"]))
            self.records, self._names, self._sources = _checked(arrays, self.header, end)
            metadata = read_columns(arrays, len(self.records), "its index")
        except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{root} is no packed copy that can be used: {error}") from error
        # copy on write: pixels may be called writable, and the file stays as it is
        self._bytes = np.memmap(self.root, np.uint8, "c")
        self._is_checked = np.zeros(len(self.records), dtype=bool)
        super().__init__(self.header["name"], metadata, str(arrays.get(INCOMPLETE, "")))

    @classmethod
    def recognises(cls, root: Path) -> bool:
        if not root.is_file():
            return False
        with root.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC

    def opened(self, index: int) -> LazyImage:
        payload = self._payload(index)
        if self.header["quality"] is None:
            width, height = self.records[index, 1:3].tolist()
            return Loaded(payload.reshape(height, width, 3))
        return SafeImageFile(payload.tobytes(), name=self._name(index))

    def image(self, index: int) -> Image.Image:
        with self.opened(index) as image:
            return Image.fromarray(image.pixels())

    def item_ids(self) -> list[str]:
        """Those of the source."""
        return numbered(self._names.tolist())

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """Of the file an image was packed from, and of what was packed."""
        packed = self.records[:, 1:5]  # width, height, length, checksum
        pairs = zip(self._sources, packed, strict=True)
        return [hashlib.sha256(one.tobytes() + two.tobytes()).digest() for one, two in pairs]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"short side": int(self.header["short_side"])}

    def fingerprint(self) -> str:
        """Of the index, which holds a checksum of every image."""
        return self._digest

    def _payload(self, index: int) -> NDArray[np.uint8]:
        """The bytes of an item; its checksum is compared the first time."""
        _, _, _, length, crc, offset = self.records[index].tolist()
        result = self._bytes[offset : offset + length]
        if not self._is_checked[index]:
            if zlib.crc32(result.data) != crc:
                raise UnreadableImageError(self._name(index), "damaged: its checksum differs")
            self._is_checked[index] = True
        return result

    def _name(self, index: int) -> str:
        return f"{self.root}: {self._names[index]}"


def _index_of(path: Path) -> tuple[bytes, int]:
    """The bytes of the index, and where they begin."""
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}{near_path(path)}")
    if not Packed.recognises(path):
        raise ValueError(f"{path} is not a packed copy of images")
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TRAILER.size))
        tail = file.read().rjust(_TRAILER.size)
        length, digest, magic = _TRAILER.unpack(tail)
        end = size - _TRAILER.size - length
        if magic != MAGIC or end < 0:
            raise ValueError(f"{path} is cut off: pack again, `unseen data pack`")
        file.seek(end)
        index = file.read(length)
    if hashlib.sha256(index).digest() != digest:
        raise ValueError(f"{path} is damaged: the checksum of its index differs")
    return index, end


def _checked(
    arrays: dict[str, NDArray[Any]], header: dict[str, Any], end: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Records, names and digests, which fit together; `end`: of the records."""
    records, names, digests = (arrays[key] for key in ("records", "names", "digests"))
    items = len(names)
    if records.shape != (items, 6) or records.dtype != np.int64 or digests.shape != (items, 32):
        raise ValueError("records, names and digests must be of the same items")
    _, width, height, length, _, offset = records.T
    inside = (records >= 0).all() and (records < 2**48).all() and (offset + length <= end).all()
    if not inside or not (records[:, 1:4] > 0).all():
        raise ValueError("its records lie outside of the file")
    if header["quality"] is None and (width * height * 3 != length).any():
        raise ValueError("its sizes cannot be right")
    if int(header["short_side"]) < 1 or not isinstance(header["name"], str):
        raise ValueError("its header cannot be right")
    return records, names, digests


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
