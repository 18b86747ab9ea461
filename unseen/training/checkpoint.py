"""Checkpoints that survive a crash at any moment, and are never trusted blindly.

A checkpoint is one file: a checksum line and a torch archive of tensors and plain values, read back
with `weights_only`. The one before is kept. A damaged file is named and skipped.
"""

import hashlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from unseen.files import replace_bytes

KEPT = 2
_DIGEST_BYTES = 32


class Checkpoints:
    """The checkpoint files of a run, newest first by their number. writes: False for all but the
    first of several processes; all are in the same state."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes

    def save(self, number: int, state: dict[str, Any]) -> None:
        """Writes checkpoint `number` (the step it was taken at), forgets all but the last ones."""
        if not self.writes:
            return
        stream = io.BytesIO()
        torch.save(state, stream)
        content = stream.getvalue()
        place = self.folder / f"{number:010d}.pt"
        replace_bytes(place, hashlib.sha256(content).digest() + content)
        for old in self._files()[KEPT:]:
            old.unlink()

    def newest(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest whole checkpoint; damaged ones are named through `warn` and skipped."""
        for place in self._files():
            content = place.read_bytes()
            digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(content).digest() != digest:
                warn(f"{place} is damaged: it is skipped, and the one before it is used")
                continue
            try:
                state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
            except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
                warn(f"{place} cannot be read ({error}): it is skipped")
                continue
            return state
        return None

    def clear(self) -> None:
        """A finished run needs none."""
        for place in (*self._files(), *self.folder.glob("*.safetensors")):
            place.unlink()
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.pt"), reverse=True)
