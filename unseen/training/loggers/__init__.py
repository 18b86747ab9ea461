"""Where else the event log's numbers go: `loggers = ["tensorboard", "wandb", "mlflow"]`."""

import importlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from unseen.core.extras import install_command
from unseen.core.files import replace_bytes
from unseen.training.events import Epoch, Event, Step

Name = Literal["tensorboard", "wandb", "mlflow"]


class Logger(Protocol):
    """Takes numbers by name at a step."""

    def __call__(self, numbers: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class Loggers:
    """Sends a run's events to every logger asked for. step: how many are done; what a logger has
    beyond it is forgotten or overwritten.

    The event log itself is always written; a logger shows the same numbers elsewhere. After a stop
    a logger goes on with the run it had begun: its name there is kept in `loggers.json`.
    """

    def __init__(
        self, names: Sequence[str], folder: Path, config: Mapping[str, Any], step: int
    ) -> None:
        self.loggers: list[Logger] = []
        for name in names:
            module = importlib.import_module(f"unseen.training.loggers.{name}")
            self.loggers.append(module.open_logger(folder, config, step))

    def __call__(self, event: Event) -> None:
        if isinstance(event, Step | Epoch):
            for logger in self.loggers:
                logger(numbers_of(event), event.step)

    def close(self) -> None:
        for logger in self.loggers:
            logger.close()


def check(names: Sequence[str]) -> None:
    """Stops before anything is written where a package is missing."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"loggers: {name} is not installed: {install_command('tracking')}")


def numbers_of(event: Step | Epoch) -> dict[str, float]:
    """The numbers of an event: `step/loss`, `train/recall@1`, `lr`, ..."""
    if isinstance(event, Step):
        return {f"step/{name}": value for name, value in event.terms.items()}
    numbers = {"lr": event.lr, "images_per_second": event.images_per_second}
    scores_of = {"train": event.train, "validation": event.validation, "test": event.test}
    for split, scores in scores_of.items():
        numbers |= {f"{split}/{name}": value for name, value in (scores or {}).items()}
    return numbers


def run_name(folder: Path) -> str:
    """The last two names of a path: runs/glyphs-margin-seed0, glyphs-margin-seed0/refit."""
    return "/".join(folder.resolve().parts[-2:])


def remembered(folder: Path, logger: str) -> str | None:
    """What a logger called this run when it began."""
    names: dict[str, str] = _names(folder)
    return names.get(logger)


def remember(folder: Path, logger: str, name: str) -> None:
    names = json.dumps(_names(folder) | {logger: name}) + "\n"
    replace_bytes(folder / "loggers.json", names.encode())


def _names(folder: Path) -> dict[str, str]:
    place = folder / "loggers.json"
    names: dict[str, str] = json.loads(place.read_text()) if place.exists() else {}
    return names
