"""What happens in a run, told as it happens: to the journal, the sinks and the terminal.

    spelled(Step(step=1, epoch=0, terms={"total": 0.5}, images_per_second=90.0))
    event_of({"event": "step", "step": 1, ...})    the same object back

A journal's line is the kind under "event" and the fields that have a value. Fields that version 0.1
did not write have defaults here; anything else that does not fit is a ValueError of one line.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.dataclasses import dataclass

import unseen
from unseen.training.stored import CHECKED, first_error

Scores = dict[str, float]  # metric -> value


@dataclass(frozen=True, config=CHECKED)
class Start:
    """The network before its first step, judged like an epoch. best: it is the best so far."""

    epoch: int = -1
    step: int = 0
    train: Scores | None = None
    validation: Scores | None = None
    test: Scores | None = None
    best: bool | None = None


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
    layer -> recall@1, where they were compared."""

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


@dataclass(frozen=True, config=CHECKED)
class Warned:
    """Something the user was told about."""

    step: int
    text: str


@dataclass(frozen=True, config=CHECKED)
class Unreadable:
    """A picture that could be read when the run began."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"cannot be read any more, replaced: {self.path} ({self.reason})"


@dataclass(frozen=True, config=CHECKED)
class StoppedEarly:
    """Nothing got better for too long. epochs: done; best: the one that is kept; full: its recall
    is 100 % and no patience was asked for; short: it got better, but not enough for what there is
    to surpass."""

    epochs: int
    best: int
    full: bool | None = None
    short: bool | None = None

    def __str__(self) -> str:
        if self.short:
            return f"after {self.epochs} epochs not on its way to surpass the best rung: stopped"
        since = f"epoch {self.best + 1}" if self.best >= 0 else "the start"
        told = f"nothing better since {since}: stopped"
        return f"recall@1 is 100 %, {told} (`patience` says when)" if self.full else told


@dataclass(frozen=True, config=CHECKED)
class Refitted:
    """A second training begins, on all training classes. steps: of one epoch."""

    epochs: int
    train_classes: int
    train_items: int
    steps: int


@dataclass(frozen=True, config=CHECKED)
class RungBegun:
    """One more training of a ladder. steps: of one epoch."""

    name: str
    start: str  # the rung it starts from; "": it begins anew
    epochs: int
    steps: int


@dataclass(frozen=True, config=CHECKED)
class RungEnded:
    """recall: its recall@1 on the validation classes; the gain over the best before it, with its
    95 % interval and its standard error, both over classes. ranked: the gain in mAP@R, which
    decides where recall@1 cannot tell, and its error; None in older runs."""

    name: str
    over: str
    recall: float
    gain: float
    low: float
    high: float
    error: float
    kept: bool
    ranked: float | None = None
    ranked_error: float | None = None

    def __str__(self) -> str:
        by_ranks = ""
        if self.ranked is not None and self.ranked_error is not None:
            by_ranks = f", mAP@R {100 * self.ranked:+.1f} (error {100 * self.ranked_error:.1f})"
        return (
            f"rung {self.name}: recall@1 {100 * self.recall:.1f} on validation classes, "
            f"{100 * self.gain:+.1f} over {self.over} (95 % interval over classes "
            f"{100 * self.low:+.1f} … {100 * self.high:+.1f}, error "
            f"{100 * self.error:.1f}){by_ranks}: {'kept' if self.kept else 'not kept'}"
        )


@dataclass(frozen=True, config=CHECKED)
class ClockDecided:
    """What the minutes of a run did not allow: a number of epochs, or whether something begins."""

    what: str
    decided: bool | int

    def __str__(self) -> str:
        if isinstance(self.decided, bool):
            return f"{self.what.removesuffix(' begins')}: not begun, the minutes do not last"
        if self.what.startswith("epochs of refit"):
            return "refit: given up, the minutes do not last; the weights before it are kept"
        return f"{self.decided} {self.what.partition(' after ')[0]}: the minutes last for no more"


@dataclass(frozen=True, config=CHECKED)
class Resumed:
    """A run goes on where it was stopped; the journal does not keep that."""

    epoch: int
    step: int


@dataclass(frozen=True, config=CHECKED)
class DescriptorChosen:
    """The best of several layers; kept in selection.json."""

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
class FrozenLayersPlanned:
    """What of the network runs once; not kept."""

    plan: str


@dataclass(frozen=True, config=CHECKED)
class Judged:
    """Training is over and the test classes are about to be read; the manifest keeps that."""

    classes: int
    items: int

    def __str__(self) -> str:
        return f"judging on {self.items:,} items of {self.classes:,} unseen classes"


Kept = (
    Start
    | Step
    | Epoch
    | Warned
    | Unreadable
    | StoppedEarly
    | Refitted
    | RungBegun
    | RungEnded
    | ClockDecided
)
Event = Kept | Resumed | DescriptorChosen | FrozenLayersPlanned | Judged

KINDS: dict[str, type[Kept]] = {
    "start": Start,
    "step": Step,
    "epoch": Epoch,
    "warning": Warned,
    "unreadable": Unreadable,
    "stopped_early": StoppedEarly,
    "refit": Refitted,
    "rung": RungBegun,
    "rung_end": RungEnded,
    "clock": ClockDecided,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


class UnknownEventError(ValueError):
    """An event of a kind that this version does not know."""


def spelled(event: Kept) -> dict[str, Any]:
    """As the journal keeps it."""
    facts = {name: value for name, value in vars(event).items() if value is not None}
    return {"event": _NAMES[type(event)]} | facts


def event_of(content: Mapping[str, Any]) -> Kept:
    """What a line of a journal says."""
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
