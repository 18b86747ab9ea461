"""Which epoch of a run is selected, and how sure that choice is."""

from dataclasses import replace
from typing import Any

import numpy as np

from unseen.core.statistics import MIN_CLASSES
from unseen.runs.prepare import RunContext
from unseen.training.selected_weights import Selection

SELECT_BY, TIE_BY, LAST = "recall@1", "map_at_r", "last"
TITLES = {SELECT_BY: "recall@1", TIE_BY: "mAP@R"}
FEW, TOO_FEW = 10, 3
WINDOW = 3  # epochs a mean is over where few classes select
FULL_PATIENCE = 10  # looks
START = -1

Scores = tuple[float, ...]


class Selector:
    """The best epoch so far; `best` is what the run's folder keeps of it. by: the first of the two
    scores that are compared, or "last".

    Epochs are compared by recall@1, of equals by mAP@R, of equals in both the earlier one is
    better; with `select_by = "map_at_r"` the other way round, with "last" not at all. The
    network before its first step is a candidate too, as epoch -1. With fewer than 10 classes
    both scores are means of an epoch and the two before it: one confusable pair makes single
    epochs jump. With fewer than 3 the last epoch is selected. Where recall@1 is 100 % only
    mAP@R can still gain: ten validations without a better one end the training, unless
    `patience` says otherwise.
    """

    def __init__(self, on: str, num_classes: int, by: str = SELECT_BY) -> None:
        self.keeps_last = num_classes < TOO_FEW or by == LAST
        self.window = WINDOW if num_classes < FEW else 1
        self.best = Selection(
            on,
            SELECT_BY,
            epoch=START,
            value=-1.0,
            classes=num_classes,
            fallback="last" if self.keeps_last else None,
            mean_of_epochs=self.window if self.window > 1 and not self.keeps_last else None,
            by=by if by == LAST or (by != SELECT_BY and not self.keeps_last) else None,
        )
        self.names = (TIE_BY, SELECT_BY) if by == TIE_BY else (SELECT_BY, TIE_BY)
        self.start: Scores = (-1.0, -1.0)
        self.highest: Scores = (-1.0, -1.0)
        self.recent: list[Scores] = []
        self.by = ""  # what the best was compared by

    def takes(self, epoch: int, scores: dict[str, float]) -> bool:
        """Whether an epoch is better than all before it; each must be shown once, in order."""
        shown = tuple(scores[name] for name in self.names)
        self.start = shown if epoch == START else self.start
        self.recent = [*self.recent, shown][-self.window :]
        reached = tuple(sum(values) / len(values) for values in zip(*self.recent, strict=True))
        is_better = self.keeps_last or reached > self.highest
        if is_better:
            self.by = self._compared(reached)
            self.highest = reached
            self.best = replace(self.best, epoch=epoch, value=scores[SELECT_BY])
        return is_better

    def _compared(self, reached: Scores) -> str:
        """What makes an epoch the best so far, in words: the score that decided."""
        is_equal = reached[0] == self.highest[0]
        name, value = self.names[is_equal], reached[is_equal]
        notes = [f"{TITLES[self.names[0]]} is equal"] if is_equal else []
        notes += [f"mean of {len(self.recent)} epochs"] if self.window > 1 else []
        return f"{TITLES[name]} {100 * value:.1f}" + (f" ({', '.join(notes)})" if notes else "")

    @property
    def is_full(self) -> bool:
        """Whether recall cannot be higher than that of the best epoch."""
        return not self.keeps_last and self.highest[self.names.index(SELECT_BY)] >= 1

    @property
    def is_behind(self) -> bool:
        """Whether no epoch was better than the start, and the last one is so in neither score."""
        is_unbeaten = not self.keeps_last and self.best.epoch == START and bool(self.recent)
        pairs = zip(self.recent[-1], self.start, strict=True) if is_unbeaten else ()
        return is_unbeaten and all(now <= before for now, before in pairs)

    def falls_short(self, goal: dict[str, float], left: float) -> bool:
        """Whether no epoch has reached the goal, in either score, and the last would not if it
        gained on as it did until now. left: of the training, in units of what is done."""
        if self.keeps_last or not self.recent:
            return False
        pairs = zip(self.recent[-1], self.start, strict=True)
        ends = [now + left * (now - before) for now, before in pairs]
        reached = [max(end, best) for end, best in zip(ends, self.highest, strict=True)]
        return all(value < goal[name] for value, name in zip(reached, self.names, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """What choosing goes on with, beside `best`."""
        return {"start": self.start, "highest": self.highest, "recent": self.recent}

    def go_on(self, best: Selection, state: dict[str, Any]) -> None:
        """After a stop."""
        self.best = best
        self.start, self.highest = tuple(state["start"]), tuple(state["highest"])
        self.recent = [tuple(scores) for scores in state["recent"]]


def too_few_to_select(context: RunContext) -> str | None:
    """What follows from validation classes that are too few, and what to do; None: they are not."""
    classes = _num_classes(context, context.split.validation)
    if context.config.training.validation.select == "test" or classes >= TOO_FEW:
        return None
    values = context.config.flat()
    idle = [key for key in ("patience", "gain_by") if values[key] is not None]
    message = f"{' and '.join(idle)} {'have' if idle[1:] else 'has'} no effect, " if idle else ""
    return (
        f"{classes} validation classes are too few to choose an epoch by: the last one is kept, "
        f"{message}and `unseen calibrate` will not be possible. {more_validation_classes(context)}"
    )


def more_validation_classes(context: RunContext) -> str:
    """How a run can have enough of them to calibrate on."""
    config, split = context.config, context.split
    if config.training.validation.select == "test":
        return "With select=test none are set aside: train with select=validation."
    if config.evaluation.protocol.name == "k_fold":
        return "Set fewer folds."
    classes = _num_classes(context, np.concatenate([split.train, split.validation]))
    if classes >= MIN_CLASSES + 2:
        return (
            f"validation_fraction={MIN_CLASSES / classes:.2g} sets {MIN_CLASSES} of "
            f"{classes} aside."
        )
    more = 2 * (MIN_CLASSES + 2)
    return f"Add classes: with {more} in all, {MIN_CLASSES} can be set aside and two trained on."


def _num_classes(context: RunContext, items: Any) -> int:
    return len(np.unique(context.dataset.labels[items]))
