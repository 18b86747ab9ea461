"""Checkpoints that survive a crash at any moment, and are never trusted blindly."""

import hashlib
import io
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from unseen.core import read_limits
from unseen.core.files import replace_bytes
from unseen.training.distributed import Processes

NUM_CHECKPOINTS = 2
NUM_PROCESSES = "processes"  # in the state: how many processes have each written a file
_DIGEST_BYTES = 32


class Checkpoints:
    """The checkpoint files of a run, newest first by their number. Of several processes, which are
    in the same state, the first writes; each does where they are divided.

    A checkpoint is one file: a checksum line and a torch archive of tensors and plain values, read
    back with `weights_only`. The one before is kept. A damaged file is named and skipped. Where
    several processes hold class centres in parts each writes a file, and a checkpoint is whole if
    all are.
    """

    def __init__(
        self, folder: Path, processes: Processes | None = None, sharded: bool = False
    ) -> None:
        self.folder, self.processes = folder, processes or Processes()
        self.sharded = sharded
        rank = self.processes.rank
        self.ending = f"-{rank}.part" if sharded and rank else ".pt"

    def save(self, number: int, state: dict[str, Any]) -> None:
        """Writes checkpoint `number` (the step it was taken at), forgets all but the last ones."""
        if not (self.processes.is_first or self.sharded):
            return
        if self.sharded:
            state = state | {NUM_PROCESSES: self.processes.count}
        stream = io.BytesIO()
        torch.save(state, stream)
        content = stream.getvalue()
        place = self._place(number)
        replace_bytes(place, hashlib.sha256(content).digest() + content)
        for old in self._files()[NUM_CHECKPOINTS:]:
            old.unlink()

    def newest(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest whole checkpoint, the same in all processes; damaged ones are named through
        `warn` and skipped."""
        for number in self.processes.agreed(lambda: [int(place.stem) for place in self._files()]):
            read = partial(self._read, self._place(number), warn)
            state = read() if self.sharded else self.processes.agreed(read)
            self._refuse_other_count(state)
            if all(self.processes.lengths(int(state is not None), torch.device("cpu"))):
                return state
        return None

    def _refuse_other_count(self, state: dict[str, Any] | None) -> None:
        own = self.processes.count if self.sharded else 1
        saved = self.processes.agreed(lambda: own if state is None else state.get(NUM_PROCESSES, 1))
        if saved != own:
            raise ValueError(
                f"the class centres of this run are sharded over {saved} processes, and "
                f"{self.processes.count} are started: resume with {saved}"
            )

    def _read(self, place: Path, warn: Callable[[str], None]) -> dict[str, Any] | None:
        try:
            content = place.read_bytes()
        except FileNotFoundError:
            return None  # of another process, which was stopped before it had written
        digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            warn(f"{place} is damaged: it is skipped, and the one before it is used")
            return None
        try:
            read_limits.check_zip(stream := io.BytesIO(content), place)
            state: dict[str, Any] = torch.load(stream, weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            warn(f"{place} cannot be read ({error}): it is skipped")
            return None
        return state

    def clear(self) -> None:
        """A finished run needs none."""
        patterns = ("[0-9]*.pt", "[0-9]*.part")
        for place in (place for pattern in patterns for place in self.folder.glob(pattern)):
            place.unlink()
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"[0-9]*{self.ending}"), reverse=True)

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:010d}{self.ending}"
