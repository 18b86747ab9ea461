"""A run on disk. A crash leaves the old file or the new one, never half of one; one process writes.

config.toml      the settled config          weights.safetensors  the selected network
manifest.json    what, when, with what       objective.safetensors  the loss's own parameters
journal.jsonl    one event per line          embeddings/  the test embeddings, per-query values
result.json      the scores: no times or     report/      the page
                 paths, so it can be compared byte for byte
refit/           with refit = true: the second training; selected/: the weights before it
"""

import json
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from unseen.files import Lock, now, replacing
from unseen.training.processes import Processes

_VERSIONED = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "pillow", "matplotlib")


class RunFolder:
    """The files of one run. Several processes read and write together: the first one does it, what
    it has read reaches them all, and what the others would write is not kept."""

    def __init__(self, path: Path, processes: Processes | None = None) -> None:
        self.path, self.processes = path, processes or Processes()

    @property
    def writes(self) -> bool:
        return self.processes.is_first

    @property
    def is_started(self) -> bool:
        return self.has("config.toml")

    @property
    def is_finished(self) -> bool:
        """Trained to the end and judged; a run that was stopped can be judged too, and goes on."""
        return self.is_started and bool(self.read_json("manifest.json")["finished"])

    def lock(self, purpose: str = "") -> AbstractContextManager[Any]:
        """Nobody else trains here while the block runs; of several processes the first holds it."""
        return Lock(self.file(".lock"), purpose) if self.writes else nullcontext()

    def file(self, name: str) -> Path:
        return self.path / name

    def has(self, name: str) -> bool:
        return self.processes.agreed(lambda: self.file(name).exists())

    def read_json(self, name: str) -> dict[str, Any]:
        text = self.processes.agreed(lambda: self.file(name).read_text())
        content: dict[str, Any] = json.loads(text)
        return content

    def write_text(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        self._write(name, lambda place: place.write_bytes(content))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self.write_text(name, json.dumps(content, indent=2, sort_keys=True) + "\n")

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        packed = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        self._write(name, lambda place: place.write_bytes(save(packed)))

    def write_state(self, name: str, state: Mapping[str, Any]) -> None:
        """Tensors and plain values in one file."""

        def write(place: Path) -> None:
            with place.open("wb") as stream:  # torch hides why a path cannot be written
                torch.save(dict(state), stream)

        self._write(name, write)

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = self.processes.agreed(lambda: load_file(self.file(name)))
        return tensors

    def write_arrays(self, name: str, **arrays: Any) -> None:
        def write(place: Path) -> None:
            with place.open("wb") as stream:
                np.savez(stream, **arrays)

        self._write(name, write)

    def start_manifest(self, command: str, data: Mapping[str, Any], config_hash: str) -> None:
        self.write_json(
            "manifest.json",
            {
                "command": command,
                "config_hash": config_hash,
                "data": data,
                "finished": False,
                "platform": platform.platform(),
                "python": platform.python_version(),
                "started": now(),
                "test_reads": [],
                "unseen": metadata.version("unseen"),
                "versions": {name: metadata.version(name) for name in _VERSIONED},
            },
        )

    def note_test_read(self, purpose: str, config_hash: str) -> None:
        """Every look at the test classes is written down, before it is taken."""
        manifest = self.read_json("manifest.json")
        read = {"time": now(), "purpose": purpose, "config_hash": config_hash}
        self.write_json("manifest.json", manifest | {"test_reads": [*manifest["test_reads"], read]})

    def note(self, key: str, content: Mapping[str, Any]) -> None:
        """One more thing the manifest tells, with its time."""
        manifest = self.read_json("manifest.json")
        self.write_json("manifest.json", manifest | {key: {"time": now(), **content}})

    def note_end(self) -> None:
        manifest = self.read_json("manifest.json")
        self.write_json("manifest.json", manifest | {"finished": True, "ended": now()})

    def _write(self, name: str, write: Callable[[Path], Any]) -> None:
        if not self.writes:
            return
        with replacing(self.file(name)) as aside:
            write(aside)
