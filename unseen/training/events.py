"""What happens in a run: events for the event log, the loggers and the terminal."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.dataclasses import dataclass

import unseen
from unseen.training import json_files
from unseen.training.json_files import CHECKED, first_error

Scores = dict[str, float]  # metric -> value


@dataclass(frozen=True, config=CHECKED)
class Start:
    """The network before its first step, evaluated like an epoch. best: it is the best so far, by:
    this score."""

    epoch: int = -1
    step: int = 0
    train: Scores | None = None
    validation: Scores | None = None
    test: Scores | None = None
    best: bool | None = None
    by: str | None = None


@dataclass(frozen=True, config=CHECKED)
class Step:
    """terms: of the objective, with its total and the norm of its gradient."""

    step: int  # done since the start
    epoch: int
    terms: Scores
    images_per_second: float


@dataclass(frozen=True, config=CHECKED)
class Epoch:
    """train: the mean loss and, like the classes that were looked at, scores. layers: part ->
    layer -> recall@1, where they were compared. by: the score that makes it the best so far."""

    epoch: int
    step: int
    train: Scores
    lr: float
    seconds: float
    images_per_second: float
    validation: Scores | None = None
    test: Scores | None = None
    layers: dict[str, Scores] | None = None
    best: bool | None = None
    by: str | None = None


@dataclass(frozen=True, config=CHECKED)
class Warned:
    """A warning the user saw."""

    step: int
    text: str


@dataclass(frozen=True, config=CHECKED)
class Unreadable:
    """An image that could be read when the run started, and cannot any more."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"cannot be read any more, replaced: {self.path} ({self.reason})"


@dataclass(frozen=True, config=CHECKED)
class StoppedEarly:
    """Training stops before its last epoch.

    Args:
        epochs: how many are done.
        best: the selected one.
        full: its recall is 100 %, and `patience` is not set.
        short: it improves too slowly to surpass the best stage.
    """

    epochs: int
    best: int
    full: bool | None = None
    short: bool | None = None

    def __str__(self) -> str:
        if self.short:
            return f"after {self.epochs} epochs not on its way to surpass the best stage: stopped"
        since = f"epoch {self.best + 1}" if self.best >= 0 else "the start"
        message = f"nothing better since {since}: stopped"
        return f"recall@1 is 100 %, {message} (`patience` says when)" if self.full else message


@dataclass(frozen=True, config=CHECKED)
class Refitted:
    """The refit starts: a second training, on all training classes. steps: of one epoch."""

    epochs: int
    train_classes: int
    train_items: int
    steps: int


@dataclass(frozen=True, config=CHECKED)
class StageStarted:
    """A stage starts. steps: of one epoch."""

    name: str
    start: str  # the stage whose weights it starts from; "": none
    epochs: int
    steps: int


@dataclass(frozen=True, config=CHECKED)
class StageEnded:
    """A stage is validated.

    Args:
        name: of the stage.
        over: the best stage before it.
        recall: its recall@1 on the validation classes.
        gain: over the best stage before it, in recall@1.
        low: of the 95 % interval of the gain, over classes.
        high: of the same interval.
        error: standard error of the gain, over classes.
        selected: it becomes the best stage.
        ranked: the gain in mAP@R, which decides where recall@1 is inconclusive.
        ranked_error: its standard error.
    """

    name: str
    over: str
    recall: float
    gain: float
    low: float
    high: float
    error: float
    selected: bool
    ranked: float
    ranked_error: float

    def __str__(self) -> str:
        return (
            f"stage {self.name}: recall@1 {100 * self.recall:.1f} on validation classes, "
            f"{100 * self.gain:+.1f} over {self.over} (95 % interval over classes "
            f"{100 * self.low:+.1f} … {100 * self.high:+.1f}, error "
            f"{100 * self.error:.1f}), mAP@R {100 * self.ranked:+.1f} (error "
            f"{100 * self.ranked_error:.1f}): {'selected' if self.selected else 'not selected'}"
        )


@dataclass(frozen=True, config=CHECKED)
class BudgetDecided:
    """The time budget shortens or skips a training.

    Args:
        training: a stage, or the refit.
        epochs: how many it has; 0: it is skipped.
        done: epochs done when this was decided.
        discarded: a shorter training is of no use: its weights are not taken.
    """

    training: str
    epochs: int
    done: int = 0
    discarded: bool | None = None

    def __str__(self) -> str:
        if not self.epochs:
            return f"{self.training} skipped: too little is left of the time budget"
        if self.discarded:
            return "refit stopped: too little is left of the time budget; earlier weights stay"
        epochs = "epoch" if self.epochs == 1 else "epochs"
        return f"{self.epochs} {epochs} of {self.training}: the time budget allows no more"


@dataclass(frozen=True, config=CHECKED)
class Resumed:
    """A run resumes; not in the event log."""

    epoch: int
    step: int


@dataclass(frozen=True, config=CHECKED)
class DescriptorChosen:
    """The best of several layers; selection.json has it, too."""

    layer: str
    on: str  # whose classes
    recall: Scores  # by layer

    def __str__(self) -> str:
        return (
            f"descriptor: {self.layer}, the best of {len(self.recall)} layers on {self.on} classes "
            f"(recall@1 {100 * self.recall[self.layer]:.1f}; the embedding has "
            f"{100 * self.recall['embedding']:.1f})"
        )


@dataclass(frozen=True, config=CHECKED)
class Note:
    """A message while work goes on; not logged."""

    text: str


@dataclass(frozen=True, config=CHECKED)
class Evaluated:
    """Training is over and the test classes are about to be read; the manifest logs that."""

    classes: int
    items: int

    def __str__(self) -> str:
        return f"evaluation on {self.items:,} items of {self.classes:,} unseen classes"


LoggedEvent = (
    Start
    | Step
    | Epoch
    | Warned
    | Unreadable
    | StoppedEarly
    | Refitted
    | StageStarted
    | StageEnded
    | BudgetDecided
)
Event = LoggedEvent | Resumed | DescriptorChosen | Note | Evaluated

KINDS: dict[str, type[LoggedEvent]] = {
    "start": Start,
    "step": Step,
    "epoch": Epoch,
    "warning": Warned,
    "unreadable": Unreadable,
    "stopped_early": StoppedEarly,
    "refit": Refitted,
    "stage": StageStarted,
    "stage_end": StageEnded,
    "time_budget": BudgetDecided,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


class UnknownEventError(ValueError):
    """An event of a kind that this version does not know."""


def spelled(event: LoggedEvent) -> dict[str, Any]:
    """A line of the event log: the kind under "event", and the fields that have a value.

    Example:
        >>> spelled(StageStarted("head", start="", epochs=9, steps=40))
        {'event': 'stage', 'name': 'head', 'start': '', 'epochs': 9, 'steps': 40}
    """
    return {"event": _NAMES[type(event)]} | json_files.spelled(event)


def event_of(content: Mapping[str, Any]) -> LoggedEvent:
    """The event of a line of an event log; what does not fit is a ValueError of one line."""
    values = dict(content)
    name = values.pop("event", None)
    if name is None:
        raise ValueError("no event")
    if name not in KINDS:
        raise UnknownEventError(f"unseen {unseen.__version__} knows no event {name!r}")
    try:
        return KINDS[name](**values)
    except ValidationError as error:
        raise ValueError(f"{name}.{first_error(error)}") from None
