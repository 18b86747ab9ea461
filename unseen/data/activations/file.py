"""A file of equal records, one per item, filled block by block, safe to be stopped, to be deleted
and to rot.

Its folder holds `records` (the values), `done` (for each block a mark, set when the block is safe
on disk: 1, or 2 where something stands in for an item that could not be had; and a checksum of mark
and values) and `key.json` (what the values depend on). What does not fit its key or its sizes
counts as absent, and so does a block that differs from its checksum, which is compared when it is
first read. Several processes may fill the same file: they write the same values to the same places.
"""

import json
import os
import shutil
import struct
import tempfile
import threading
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.core.contracts import IntArray
from unseen.core.files import refuse_links

BLOCK = 64  # items that are written together
WHOLE, WITH_STAND_INS = b"\x01", b"\x02"
ATTEMPTS = 3  # at writing while somebody deletes the folder
_MARK = struct.Struct("<cI")  # mark, CRC-32


@dataclass
class ActivationFile:
    """key: what the values depend on, in JSON's types. record: the type of one item's values."""

    folder: Path
    key: dict[str, Any]
    num_items: int
    record: np.dtype[Any]
    _memmap: NDArray[Any] | None = None  # `records` as it was found last
    _state: os.stat_result | None = None
    _compared: set[int] = field(default_factory=set)
    _reading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_bytes(self) -> int:
        return self.num_items * self.record.itemsize

    @property
    def num_blocks(self) -> int:
        return -(-self.num_items // BLOCK)

    def done(self) -> NDArray[np.bool_]:  # [blocks]
        """Which blocks are there; none if what is there does not fit."""
        return self._marks()["mark"] > 0

    def whole(self) -> NDArray[np.bool_]:  # [blocks]
        """Which blocks are there with nothing but their own items."""
        return self._marks()["mark"] == WHOLE[0]

    def prepare(self) -> None:
        """Empty files of the right size, put in place in one step; what fits already stays."""
        if self._fits():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="new-"))
        (fresh / "key.json").write_text(json.dumps(self._full_key(), indent=1))
        (fresh / "done").write_bytes(bytes(self.num_blocks * _MARK.size))
        with (fresh / "records").open("wb") as file:
            file.truncate(self.num_bytes)  # takes no space before it is written to
        try:
            fresh.rename(self.folder)
        except OSError:  # somebody else has just made the same file: use theirs
            shutil.rmtree(fresh)

    def write(self, block: int, records: NDArray[Any], mark: bytes = WHOLE) -> None:
        """The block first, then, when it is safe on disk, the mark that it is there."""
        content = records.tobytes()
        marked = _MARK.pack(mark, zlib.crc32(content, zlib.crc32(mark)))
        for attempt in range(ATTEMPTS):
            try:
                self._put("records", block * BLOCK * self.record.itemsize, content)
                self._put("done", block * _MARK.size, marked)
                return
            except FileNotFoundError:
                if attempt == ATTEMPTS - 1:
                    raise
                self.prepare()

    def read(self, items: IntArray) -> tuple[NDArray[Any], list[int]]:
        """The records of some items, and those of their blocks that are not there, or not as they
        were written: their records mean nothing."""
        wanted = blocks_of(items).tolist()
        with self._reading:
            records = self._records()
            if records is None:
                return np.zeros(len(items), self.record), wanted
            fresh = [block for block in wanted if block not in self._compared]
            marks = self._marks() if fresh else None
            for block in fresh:
                assert marks is not None
                mark, crc = marks[block]
                content = records[block * BLOCK : (block + 1) * BLOCK].view(np.uint8)
                if mark and zlib.crc32(content.data, zlib.crc32(bytes([mark]))) == crc:
                    self._compared.add(block)
            return records[items], [block for block in wanted if block not in self._compared]

    def _records(self) -> NDArray[Any] | None:  # [items]
        """All records, mapped, not read; None where there is no such file."""
        place = self.folder / "records"
        try:
            state = place.stat()
            if self._state is None or not os.path.samestat(state, self._state):
                self._compared.clear()
                self._memmap = np.memmap(place, self.record, "r", shape=(self.num_items,))
                self._state = state
            return self._memmap if state.st_size == self.num_bytes else None
        except (FileNotFoundError, ValueError):  # gone; or cut short
            return None

    def _marks(self) -> NDArray[Any]:  # [blocks] of mark, crc
        kind = np.dtype([("mark", "u1"), ("crc", "<u4")])
        if not self._fits():
            return np.zeros(self.num_blocks, kind)
        return np.fromfile(self.folder / "done", kind)

    def _full_key(self) -> dict[str, Any]:
        sizes = {"num_items": self.num_items, "block": BLOCK}
        return self.key | sizes | {"record": str(self.record)}

    def _fits(self) -> bool:
        try:
            refuse_links(self.folder)
            stored = json.loads((self.folder / "key.json").read_text())
            sizes = [(self.folder / name).stat().st_size for name in ("done", "records")]
        except (OSError, ValueError):
            return False
        return stored == self._full_key() and sizes == [
            self.num_blocks * _MARK.size,
            self.num_bytes,
        ]

    def _put(self, name: str, offset: int, content: bytes) -> None:
        with (self.folder / name).open("r+b") as file:
            file.seek(offset)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def blocks_of(items: IntArray) -> IntArray:
    """The blocks some items lie in, each once, rising."""
    return np.unique(np.asarray(items, dtype=np.int64) // BLOCK)
