"""A file of equal records, one per item, filled block by block, safe to be stopped.

Its folder holds `records` (the values), `done` (one byte per block, set when the block is safe on
disk: 1, or 2 where something stands in for an item that could not be had) and `key.json` (what the
values depend on). What does not fit its key or its sizes counts as absent. Several processes may
fill the same file: they write the same values to the same places.
"""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.contracts import IntArray

BLOCK = 64  # items that are written together
WHOLE, WITH_STAND_INS = b"\x01", b"\x02"


@dataclass(frozen=True)
class ActivationFile:
    """key: what the values depend on, in JSON's types. record: the type of one item's values."""

    folder: Path
    key: dict[str, Any]
    num_items: int
    record: np.dtype[Any]

    @property
    def num_bytes(self) -> int:
        return self.num_items * self.record.itemsize

    @property
    def num_blocks(self) -> int:
        return -(-self.num_items // BLOCK)

    def done(self) -> NDArray[np.bool_]:  # [blocks]
        """Which blocks are there; none if what is there does not fit."""
        return self._marks() > 0

    def whole(self) -> NDArray[np.bool_]:  # [blocks]
        """Which blocks are there with nothing but their own items."""
        return self._marks() == WHOLE[0]

    def prepare(self) -> None:
        """Empty files of the right size, put in place in one step; what fits already stays."""
        if self._fits():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="new-"))
        (fresh / "key.json").write_text(json.dumps(self._full_key(), indent=1))
        (fresh / "done").write_bytes(bytes(self.num_blocks))
        with (fresh / "records").open("wb") as file:
            file.truncate(self.num_bytes)  # takes no space before it is written to
        try:
            fresh.rename(self.folder)
        except OSError:  # somebody else has just made the same file: use theirs
            shutil.rmtree(fresh)

    def write(self, block: int, records: NDArray[Any], mark: bytes = WHOLE) -> None:
        """The block first, then, when it is safe on disk, the mark that it is there."""
        self._put("records", block * BLOCK * self.record.itemsize, records.tobytes())
        self._put("done", block, mark)

    def records(self) -> NDArray[Any]:  # [items]
        """All records, mapped, not read; only those of blocks that are done mean anything."""
        return np.memmap(self.folder / "records", self.record, "r", shape=(self.num_items,))

    def _marks(self) -> NDArray[np.uint8]:  # [blocks]
        if not self._fits():
            return np.zeros(self.num_blocks, dtype=np.uint8)
        return np.fromfile(self.folder / "done", dtype=np.uint8)

    def _full_key(self) -> dict[str, Any]:
        sizes = {"num_items": self.num_items, "block": BLOCK}
        return self.key | sizes | {"record": str(self.record)}

    def _fits(self) -> bool:
        try:
            stored = json.loads((self.folder / "key.json").read_text())
            sizes = [(self.folder / name).stat().st_size for name in ("done", "records")]
        except (OSError, ValueError):
            return False
        return stored == self._full_key() and sizes == [self.num_blocks, self.num_bytes]

    def _put(self, name: str, offset: int, content: bytes) -> None:
        with (self.folder / name).open("r+b") as file:
            file.seek(offset)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def blocks_of(items: IntArray) -> IntArray:
    """The blocks some items lie in, each once, rising."""
    return np.unique(np.asarray(items, dtype=np.int64) // BLOCK)
