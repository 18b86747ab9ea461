"""A run on disk. A crash leaves the old file or the new one, never half of one; one process writes;
every file has a checksum: tensors and event log inside, the others in checksums.json.

    config.toml      the resolved config          weights.safetensors  the selected network
    manifest.json    what, when, with what       objective.safetensors  the loss's own parameters
    events.jsonl    one event per line          embeddings/  the test embeddings, per-query values
    result.json      the scores: no times or     report/      the page
                     paths, so it can be compared byte for byte
    items.npz        what it is about: names,    readings/    judgements after the training
                     labels, hashes, the split
    refit/           with refit = true: the second training; selected/: the weights before it
    checkpoint/      where training stands
    stages/          each stage: a training with the files above
"""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import unseen
from unseen.core.files import Lock, now, refuse_links, replacing, sha256
from unseen.core.reason import Reason
from unseen.models.weights import fill, is_whole, packed, read_tensors
from unseen.training import checksums, json_files
from unseen.training.checksums import AGAIN
from unseen.training.distributed import Processes
from unseen.training.manifest import VERSION, Data, Manifest, TestRead, parsed, refuse_later_version

_VERSIONED = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "pillow", "matplotlib")

SELECTED = ("weights.safetensors", "objective.safetensors")

T = TypeVar("T")


class RunFolder:
    """The files of one run. Several processes read and write together: the first one does it, what
    it has read reaches them all, and what the others would write is not kept."""

    def __init__(self, path: Path, processes: Processes | None = None) -> None:
        self.path, self.processes = path, processes or Processes()
        self._has_no_links = False

    @property
    def writes(self) -> bool:
        return self.processes.is_first

    @property
    def is_started(self) -> bool:
        return self.has("config.toml")

    @property
    def is_finished(self) -> bool:
        """Trained to the end and evaluated; a run that was stopped can be evaluated too, and goes
        on."""
        return self.is_started and self.manifest().finished

    def lock(self, purpose: str = "") -> AbstractContextManager[Any]:
        """Nobody else trains here while the block runs; of several processes the first holds it."""
        return Lock(self.file(".lock"), purpose) if self.writes else nullcontext()

    @property
    def is_whole(self) -> bool:
        """Whether the trained network and its scores can be read."""

        def whole() -> bool:
            restored = [name for name in checksums.RESTORED if self.file(name).exists()]
            return all(is_whole(self.file(name)) for name in SELECTED) and all(
                checksums.is_whole(self.path, name)
                for name in ("result.json", "selection.json", *restored)
            )

        return self.processes.agreed(whole)

    def file(self, name: str) -> Path:
        """The path of a file, in a folder without links (`refuse_links`)."""
        if not self._has_no_links:
            refuse_links(self.path)
            self._has_no_links = True
        return self.path / name

    def checked(self, name: str) -> Path:
        """The path of a file that was compared with its checksum; ValueError: it is not whole."""
        return checksums.checked(self.file("."), name)

    def holds(self, name: str) -> bool:
        """Whether a file is there, and whole."""
        return self.processes.agreed(lambda: checksums.is_whole(self.path, name))

    def has(self, name: str) -> bool:
        """Whether a file is there; the folder may be no run at all."""
        return self.processes.agreed((self.path / name).exists)

    def read_json(self, name: str) -> dict[str, Any]:
        text = self.processes.agreed(lambda: self.checked(name).read_text())
        content: dict[str, Any] = json.loads(text)
        return content

    def read(self, name: str, kind: type[T]) -> T:
        """A dataclass, as `write_json` has written it; ValueError: it is damaged, or of later."""
        text = self.processes.agreed(lambda: self.checked(name).read_text())
        return json_files.parsed(kind, text, str(self.file(name)), checksums.unreadable(name))

    def manifest(self) -> Manifest:
        """What the run is; ValueError: a later version of unseen has written it."""
        text = self.processes.agreed(lambda: self.checked("manifest.json").read_text())
        return parsed(text, str(self.file("manifest.json")))

    def refuse_later_version(self) -> None:
        """A folder that a later version of unseen has written is an error."""
        if self.has("manifest.json"):
            place = self.file("manifest.json")
            text = self.processes.agreed(lambda: place.read_text(errors="replace"))
            refuse_later_version(text, str(place))

    def write_text(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        self._write(name, lambda place: place.write_bytes(content))

    def write_json(self, name: str, content: Any) -> None:
        """A dataclass of `stored`, or a mapping."""
        self.write_text(name, json_files.text_of(content))

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self.write_bytes(name, packed(tensors))

    def damaged(self, names: Sequence[str]) -> list[str]:
        """Those files of tensors that are lost or damaged."""
        return self.processes.agreed(lambda: [n for n in names if not is_whole(self.file(n))])

    def write_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Tensors and plain values in one file."""

        def write(place: Path) -> None:
            with place.open("wb") as stream:  # torch hides why a path cannot be written
                torch.save(dict(state), stream)

        self._write(name, write)

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Damaged or missing files are named, with what to do."""

        def read() -> dict[str, Tensor]:
            try:
                return read_tensors(self.file(name), is_ours=True)
            except FileNotFoundError as error:
                raise ValueError(f"{self.file(name)} is missing: {AGAIN}") from error
            except ValueError as error:
                raise ValueError(f"{error}: {AGAIN}") from error

        return self.processes.agreed(read)

    def fill(self, module: nn.Module, name: str) -> None:
        """Puts the tensors of a file into a module."""
        fill(module, self.read_tensors(name), str(self.file(name)))

    def write_arrays(self, name: str, **arrays: Any) -> None:
        def write(place: Path) -> None:
            with place.open("wb") as stream:
                np.savez(stream, **arrays)

        self._write(name, write)

    def start_manifest(
        self, command: str, data: Data, config_hash: str, plan: Sequence[Reason] = ()
    ) -> None:
        """Further processes do not know the plan, and need not: the first one writes."""
        manifest = Manifest(
            command=command,
            config_hash=config_hash,
            data=data,
            plan=list(plan) or None,
            platform=platform.platform(),
            python=platform.python_version(),
            started=now(),
            unseen=unseen.__version__,
            version=VERSION,
            versions={name: metadata.version(name) for name in _VERSIONED},
        )
        self.write_json("manifest.json", manifest)

    def note_test_read(self, purpose: str, config_hash: str) -> None:
        """Every test-set access is logged, before it happens."""
        read = TestRead(now(), purpose, config_hash)
        self._note(lambda manifest: replace(manifest, test_reads=[*manifest.test_reads, read]))

    def note_refit(self, message: Mapping[str, Any]) -> None:
        self._note(lambda manifest: replace(manifest, refit={"time": now(), **message}))

    def note_custom_components(self, origins: Mapping[str, Any]) -> None:
        """Where custom components came from."""
        noted = {"time": now(), **origins}
        self._note(lambda manifest: replace(manifest, custom_components=noted))

    def note_resumed(self) -> None:
        """A finished run is trained again, because something of it was lost."""
        if self.is_finished:
            self._note(lambda m: replace(m, finished=False, ended=None, event_log_bytes=None))

    def note_end(self) -> None:
        written = self.file("events.jsonl")
        size = written.stat().st_size if self.writes and written.exists() else 0
        self._note(lambda m: replace(m, finished=True, ended=now(), event_log_bytes=size))

    def _note(self, changed: Callable[[Manifest], Manifest]) -> None:
        """A run may be evaluated while it trains: whoever notes something waits for the other. Of
        several processes, none goes on before it is written."""
        if self.writes:
            with Lock(self.file(".manifest.lock"), wait=True):
                text = self.checked("manifest.json").read_text()
                manifest = changed(parsed(text, str(self.file("manifest.json"))))
                self.write_json("manifest.json", manifest)
        self.processes.wait()

    def _write(self, name: str, write: Callable[[Path], Any]) -> None:
        if not self.writes:
            return
        with replacing(self.file(name)) as aside:
            write(aside)
            is_listed = aside.suffix in (".json", ".toml", ".npz")
            is_first = is_listed and checksums.expect(self.path, name, sha256(aside))
        if is_first:
            checksums.confirm(self.path, name)
