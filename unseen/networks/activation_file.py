"""A file of equal arrays, one per item and view, filled block by block, safe to be stopped.

Its folder holds `activations` (the values), `done` (one byte per block, set when the block is safe
on disk) and `key.json` (what the values depend on). What does not fit its key or its sizes counts
as absent. Two processes may fill the same file: they write the same values to the same places.
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

BLOCK = 64  # items that are written together


@dataclass(frozen=True)
class ActivationFile:
    """key: what the values depend on, in JSON's types. shape: of one item's array."""

    folder: Path
    key: dict[str, Any]
    num_views: int
    num_items: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        values = self.num_views * self.num_items * int(np.prod(self.shape))
        return values * np.dtype(self.dtype).itemsize

    @property
    def blocks_per_view(self) -> int:
        return -(-self.num_items // BLOCK)

    def missing(self) -> list[tuple[int, int]]:
        """(view, block) of what is not there yet; everything if what is there does not fit."""
        every = [(v, b) for v in range(self.num_views) for b in range(self.blocks_per_view)]
        if not self._fits():
            return every
        done = np.fromfile(self.folder / "done", dtype=np.uint8)
        return [place for place, is_done in zip(every, done, strict=True) if not is_done]

    def prepare(self) -> None:
        """Empty files of the right size, put in place in one step; what fits already stays."""
        if self._fits():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder.parent).free
        if self.num_bytes > free:
            raise OSError(
                f"the activation cache needs {self.num_bytes / 1e9:.1f} GB where "
                f"{free / 1e9:.1f} GB are free, in {self.folder.parent}: "
                "cut later, or keep fewer views"
            )
        fresh = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="new-"))
        (fresh / "key.json").write_text(json.dumps(self._full_key(), indent=1))
        (fresh / "done").write_bytes(bytes(self.num_views * self.blocks_per_view))
        with (fresh / "activations").open("wb") as file:
            file.truncate(self.num_bytes)
        try:
            fresh.rename(self.folder)
        except OSError:  # somebody else has just made the same file: use theirs
            shutil.rmtree(fresh)

    def write(self, view: int, block: int, values: NDArray[Any]) -> None:
        """The block first, then, when it is safe on disk, the mark that it is there."""
        content = np.ascontiguousarray(values, dtype=self.dtype)
        first = view * self.num_items + block * BLOCK
        self._put("activations", first * content[0].nbytes, content.tobytes())
        self._put("done", view * self.blocks_per_view + block, b"\x01")

    def values(self) -> NDArray[Any]:
        """All values [views, items, ...], mapped, not read."""
        if self.missing():
            raise ValueError("this activation cache is not built yet: call build() first")
        shape = (self.num_views, self.num_items, *self.shape)
        return np.memmap(self.folder / "activations", self.dtype, "r", shape=shape)

    def _full_key(self) -> dict[str, Any]:
        sizes = {"num_views": self.num_views, "num_items": self.num_items, "block": BLOCK}
        return self.key | sizes | {"shape": list(self.shape), "dtype": self.dtype}

    def _fits(self) -> bool:
        try:
            stored = json.loads((self.folder / "key.json").read_text())
            sizes = [(self.folder / name).stat().st_size for name in ("done", "activations")]
        except (OSError, ValueError):
            return False
        blocks = self.num_views * self.blocks_per_view
        return stored == self._full_key() and sizes == [blocks, self.num_bytes]

    def _put(self, name: str, offset: int, content: bytes) -> None:
        with (self.folder / name).open("r+b") as file:
            file.seek(offset)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
