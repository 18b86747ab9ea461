"""Where else the journal's numbers go: `sinks = ["tensorboard", "wandb", "mlflow"]`.

The journal itself is always written; a sink shows the same numbers elsewhere. After a stop a sink
goes on with the run it had begun: its name there is kept in `sinks.json`.
"""

import importlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from unseen.extras import install_command
from unseen.files import replace_bytes
from unseen.training.events import Epoch, Event, Step

Name = Literal["tensorboard", "wandb", "mlflow"]
PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


class Sink(Protocol):
    """Takes numbers by name at a step."""

    def __call__(self, numbers: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class Sinks:
    """Sends a run's events to every sink asked for. step: how many are done; what a sink has
    beyond it is forgotten or overwritten."""

    def __init__(
        self, names: Sequence[str], folder: Path, config: Mapping[str, Any], step: int
    ) -> None:
        self.sinks: list[Sink] = []
        for name in names:
            module = importlib.import_module(f"unseen.training.sinks.{name}")
            self.sinks.append(module.open_sink(folder, config, step))

    def __call__(self, event: Event) -> None:
        if isinstance(event, Step | Epoch):
            for sink in self.sinks:
                sink(numbers_of(event), event.step)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def check(names: Sequence[str]) -> None:
    """Stops before anything is written where a package is missing."""
    for name in names:
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise ValueError(f"sinks: {name} is not installed: {install_command('tracking')}")


def numbers_of(event: Step | Epoch) -> dict[str, float]:
    """The numbers of an event: `step/loss`, `train/recall@1`, `lr`, ..."""
    if isinstance(event, Step):
        return {f"step/{name}": value for name, value in event.terms.items()}
    numbers = {"lr": event.lr, "images_per_second": event.images_per_second}
    parts = {"train": event.train, "validation": event.validation, "test": event.test}
    for part, scores in parts.items():
        numbers |= {f"{part}/{name}": value for name, value in (scores or {}).items()}
    return numbers


def run_name(folder: Path) -> str:
    """The last two names of a path: runs/glyphs-margin-seed0, glyphs-margin-seed0/refit."""
    return "/".join(folder.resolve().parts[-2:])


def remembered(folder: Path, sink: str) -> str | None:
    """What a sink called this run when it began."""
    names: dict[str, str] = _names(folder)
    return names.get(sink)


def remember(folder: Path, sink: str, name: str) -> None:
    names = json.dumps(_names(folder) | {sink: name}) + "\n"
    replace_bytes(folder / "sinks.json", names.encode())


def _names(folder: Path) -> dict[str, str]:
    place = folder / "sinks.json"
    names: dict[str, str] = json.loads(place.read_text()) if place.exists() else {}
    return names
