"""Which weights a run has kept, and why: `selection.json` of its folder.

Version 0.1 wrote on, metric, epoch, value and descriptor; every other field has come since.
"""

from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

from unseen.training.run_folder import RunFolder
from unseen.training.stored import CHECKED

FILE = "selection.json"


@dataclass(frozen=True, config=CHECKED)
class Descriptor:
    """The layer a run is judged at. asked: by the config; on, recall: where layers were compared,
    whose classes chose, and what each reached."""

    asked: str
    layer: str
    on: str | None = None
    recall: dict[str, float] | None = None


@dataclass(frozen=True, config=CHECKED)
class Refit:
    """A second training, on all training classes."""

    epochs: int
    train_classes: int
    train_items: int


@dataclass(frozen=True, config=CHECKED)
class ChainLink:
    """A training that led to the kept weights, and the epochs that count of it."""

    name: str
    epochs: int


@dataclass(frozen=True, config=CHECKED)
class RungScore:
    """A rung and its recall@1 on the validation classes; after the first, its gain over the best
    before it (`events.RungEnded`)."""

    name: str
    depth: str
    epoch: int
    epochs: int
    loss: str
    picture_size: int | None
    training_sizes: list[int]
    recall: float
    kept: bool
    over: str | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    ranked: float | None = None
    ranked_error: float | None = None
    backbone: str | None = None  # None: from before a rung could have its own


@dataclass(frozen=True, config=CHECKED)
class Ladder:
    """A climbed ladder. kept: the name of the best rung; classes: that judged."""

    kept: str
    chain: list[ChainLink]
    classes: int
    rungs: list[RungScore] = field(default_factory=list)


@dataclass(frozen=True, config=CHECKED)
class Selection:
    """The kept epoch (-1: the start) and its score on the classes it was selected on. kept: "last"
    where those are too few to choose by, or were not asked; mean_of_epochs: that were compared
    where they are few; by: another score that chose it, or "last"."""

    on: str
    metric: str
    epoch: int
    value: float
    classes: int | None = None
    kept: Literal["last"] | None = None
    mean_of_epochs: int | None = None
    stopped_after: int | None = None
    descriptor: Descriptor | None = None
    refit: Refit | None = None
    ladder: Ladder | None = None
    by: str | None = None


@dataclass(frozen=True, config=CHECKED)
class RungEnd:
    """A rung's training at its end: `rung.json` of its folder. epochs: done."""

    selection: Selection
    epochs: int


def read_selection(folder: RunFolder) -> Selection:
    return folder.read(FILE, Selection)


def write_selection(folder: RunFolder, selection: Selection) -> None:
    folder.write_json(FILE, selection)
