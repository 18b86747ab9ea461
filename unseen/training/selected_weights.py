"""Which weights a run selected, and why: `selection.json` of its folder."""

from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

from unseen.training.json_files import CHECKED
from unseen.training.run_folder import RunFolder

FILE = "selection.json"
BEFORE_REFIT = "selected"  # where the weights from before the refit are kept


@dataclass(frozen=True, config=CHECKED)
class Descriptor:
    """The layer a run is evaluated at.

    Args:
        request: what the config says.
        layer: the layer.
        on: where layers were compared, whose classes chose.
        recall: what each layer reached there.
    """

    request: str
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
    """A training that led to the selected weights, and how many of its epochs did."""

    name: str
    epochs: int


@dataclass(frozen=True, config=CHECKED)
class StageScore:
    """A stage and its recall@1 on the validation classes; after the first, its gain over the best
    before it (`events.StageEnded`)."""

    name: str
    depth: str
    epoch: int
    epochs: int
    loss: str
    backbone: str
    image_size: int | None
    training_sizes: list[int]
    recall: float
    selected: bool
    over: str | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    error: float | None = None
    ranked: float | None = None
    ranked_error: float | None = None


@dataclass(frozen=True, config=CHECKED)
class StageLog:
    """The stages of a run: the name of the selected one, the trainings that led to it, and how many
    validation classes decided."""

    selected: str
    chain: list[ChainLink]
    classes: int
    stages: list[StageScore] = field(default_factory=list)


@dataclass(frozen=True, config=CHECKED)
class Selection:
    """The selected epoch (-1: the start) and its score on the classes it was selected on.

    Args:
        on: "validation" or "test" classes.
        metric: the score of `value`.
        epoch: from 0; -1: the start.
        value: its score; below 0: no epoch was evaluated.
        classes: how many decided.
        fallback: "last": the classes are too few to choose by, or were not evaluated.
        mean_of_epochs: how many epochs a compared score is the mean of, where classes are few.
        stopped_after: the epochs of a training that stopped early.
        descriptor: the layer that is evaluated.
        refit: the second training.
        stages: all stages of the run.
        by: another score that selected it, or "last".
    """

    on: str
    metric: str
    epoch: int
    value: float
    classes: int
    fallback: Literal["last"] | None = None
    mean_of_epochs: int | None = None
    stopped_after: int | None = None
    descriptor: Descriptor | None = None
    refit: Refit | None = None
    stages: StageLog | None = None
    by: str | None = None


@dataclass(frozen=True, config=CHECKED)
class StageEnd:
    """A stage's training at its end: `stage.json` of its folder. epochs: done."""

    selection: Selection
    epochs: int


def read_selection(folder: RunFolder) -> Selection:
    return folder.read(FILE, Selection)


def write_selection(folder: RunFolder, selection: Selection) -> None:
    folder.write_json(FILE, selection)
