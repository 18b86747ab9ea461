"""What faults are tried on. Each is made by one command, which goes on after a stop; is read by
everybody who reads it; and lies in one folder, with the images it is about.

    before(place)    what must be there
    make(place)      from nothing, or from what is left
    finish(place)    what other commands add to it later
    readers(place)   everybody who reads it, by name
    files(place)     kinds of file, each with its examples
    moments          at which a process can be killed: what is called then
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from unseen.config import schema as configs
from unseen.data.activations import file as activation_file
from unseen.models.small_conv import SmallConv
from unseen.reports import compare_runs
from unseen.reports import stored_run as reports
from unseen.runs import callbacks
from unseen.runs import evaluate_run as evaluation
from unseen.runs import training_loop as training
from unseen.runs.calibrate_run import calibrate_run, read_calibration
from unseen.runs.diagnose_run import diagnose
from unseen.runs.evaluate_layers import compare_layers
from unseen.runs.prepare import Callbacks, reopen
from unseen.runs.run import run_config
from unseen.runs.trained_run import Trained
from unseen.training import checkpoint
from unseen.training.selected_weights import read_selection

TINY = [
    "backbone=small_conv",
    "batch_size=16",
    "embedding_size=8",
    "epochs=2",
    "sampler.steps=3",
    "image_size=16",
    "loss=margin",
    "workers=0",
    "threads=1",
    "validation_fraction=0.5",
    'metrics=["recall@1"]',
]
OPTIONAL = (
    "calibration.json",
    "diagnosis.json",
    "layers.json",
    "events.jsonl",
    "embeddings/layers.npz",
    "embeddings/test.npz",
    "embeddings/per_query.npz",
)
EVERYWHERE = {"rename": (os, "replace"), "flush": (os, "fsync")}
Readers = dict[str, Callable[[], Any]]
Moments = dict[str, tuple[Any, str]]


def narrow_network() -> None:
    """The built-in network with a few of its channels."""
    SmallConv.num_features = 64


def draw_images(place: Path) -> None:
    for c in range(16):
        (place / "photos" / f"class {c:02d}").mkdir(parents=True)
        for i in range(4):
            image(place / "photos" / f"class {c:02d}" / f"{i}.bmp", 10 * c + i, c)


def image(path: Path, seed: int, hue: int = 0) -> None:
    noise = np.random.default_rng(seed).integers(0, 156, (16, 16, 3))
    Image.fromarray((noise + 6 * hue).clip(0, 255).astype(np.uint8)).save(path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "replaced": lambda photos: image(photos / "class 03" / "1.bmp", 777),
    "removed": lambda photos: (photos / "class 03" / "1.bmp").unlink(),
    "added": lambda photos: image(photos / "class 03" / "new.bmp", 778),
    "relabelled": lambda photos: (
        (photos / "class 03" / "1.bmp").rename(photos / "class 05" / "other.bmp"),
        None,
    )[1],
}


class Run:
    """A training; words: of its config."""

    def __init__(self, name: str, *words: str) -> None:
        self.name, self.words = name, words
        self.optional: tuple[str, ...] = OPTIONAL
        self.moments: Moments = EVERYWHERE | {
            "checkpoint": (checkpoint, "replace_bytes"),
            "validation": (callbacks, "evaluate"),
            "step": (training.TrainingLoop, "_after_step"),
            "evaluation": (evaluation, "evaluate"),
        }

    def config(self, place: Path) -> configs.Config:
        data = [f"data.root={place / 'photos'}"]
        given: dict[str, Any] = {"data": {"name": "folder", "root": "."}}
        return configs.make(configs.override(given, [*TINY, *self.words, *data]))

    def before(self, place: Path) -> None:
        pass

    def make(self, place: Path) -> None:
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        callbacks.SECONDS_BETWEEN_CHECKPOINTS = 0.0
        run_config(self.config(place), place / "run", "unseen train photos")

    def finish(self, place: Path) -> None:
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        context, folder = reopen(place / "run")
        compare_layers(context, folder, [], Callbacks())
        diagnose(context, folder, Callbacks())
        if not context.config.training.validation.refit:
            calibrate_run(context, Trained.open(place / "run"), Callbacks())

    def readers(self, place: Path) -> Readers:
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        run = place / "run"

        def evaluated() -> Any:
            context, folder = reopen(run)
            selection = read_selection(folder)
            return evaluation.evaluate_run(
                context, folder, selection, "unseen evaluate", Callbacks()
            )

        def embedded() -> Any:
            photos = sorted((place / "photos").rglob("*.bmp"))[:3]
            return Trained.open(run).embed(photos)

        return {
            "report": lambda: reports.read(run),
            "compare": lambda: compare_runs.compare_runs(run, run).values,
            "embed": embedded,
            "calibration": lambda: read_calibration(Trained.open(run)),
            "train again": lambda: run_config(self.config(place), run, "again").result,
            "evaluate": evaluated,
        }

    def kept(self, place: Path) -> Readers:
        """What must be the same after a stop: all but times."""
        run = place / "run"
        times = ("seconds", "images_per_second")

        def events() -> Any:
            reports.read(run)  # says if the event log is shorter than it was
            return [
                {k: v for k, v in vars(event).items() if k not in times}
                for event in training.read(run / "events.jsonl")
            ]

        names = ("result.json", "weights.safetensors", "objective.safetensors", "selection.json")
        return {"event_log": events} | {
            name: (lambda name=name: (run / name).read_bytes())  # type: ignore[misc]
            for name in names
        }

    def files(self, place: Path) -> dict[str, list[Path]]:
        every = sorted((place / "run").rglob("*"))
        result = [file for file in every if file.is_file() and file.stat().st_size]
        return {str(file.relative_to(place / "run")): [file] for file in result}


class Cache(Run):
    """A training on kept activations, whose cache is what is damaged."""

    def __init__(self) -> None:
        super().__init__(
            "cache", "seed=1", "lr=0.001", "freeze_until=stage1", "cached_augmentations=2"
        )
        self.moments |= {"block": (activation_file.ActivationFile, "write")}

    def finish(self, place: Path) -> None:
        pass

    def readers(self, place: Path) -> Readers:
        """Whoever trains next with the same frozen layers."""
        os.environ["UNSEEN_CACHE"] = str(place / "cache")
        return {"train": lambda: run_config(self.config(place), place / "other", "another").result}

    def files(self, place: Path) -> dict[str, list[Path]]:
        kinds: dict[str, list[Path]] = {}
        for file in sorted((place / "cache").rglob("*")):
            if file.is_file():
                kept = file.relative_to(place / "cache").parts[0]
                kinds.setdefault(f"{kept}/{file.suffix or file.name}", []).append(file)
        return kinds
