"""The time that a run has spent, over all its stops, and what was shortened by it."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unseen.runs.callbacks import LoopCallback
from unseen.runs.prepare import Callbacks
from unseen.training.event_log import append
from unseen.training.events import BudgetDecided, Epoch
from unseen.training.run_folder import RunFolder

if TYPE_CHECKING:
    from unseen.runs.training_loop import TrainingLoop

FILE = "clock.json"
REFIT = "refit"  # a training beside the stages
LATE = 1.05  # a training is shortened where it would take longer than this share of what is left
LEAST = 1 / 3  # of a stage's planned minutes: with less left it is not begun, a head without all
AFTER = 0.2  # of the minutes: for evaluation and the report, where no plan says it
ENOUGH = "whole network"  # reason of a plan: minutes that would do
OFTEN = 20.0  # seconds after which what is spent is written down


class TimeBudget:
    """minutes None: there is always time. now: seconds; began: when the run did, by `now`.

    Each decision is made once, stored in clock.json and logged; a run that resumes reads it
    back, so that it ends as it would have without the stop. It only shortens what
    `time_budget.py` planned.
    """

    def __init__(
        self,
        folder: RunFolder,
        callbacks: Callbacks,
        minutes: float | None,
        began: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.callbacks, self.minutes, self.now = folder, callbacks, minutes, now
        self.began = now() if began is None else began
        self.saved_at = now()
        stored: dict[str, Any] = folder.read_json(FILE) if folder.holds(FILE) else {}
        self.before: float = stored.get("spent", 0.0)
        self.decided: dict[str, int] = stored.get("decided", {})

    @property
    def left(self) -> float:
        """Seconds; infinite without a budget."""
        if self.minutes is None:
            return float("inf")
        return 60 * self.minutes - self.before - (self.now() - self.began)

    def save(self) -> None:
        """Writes down what is spent, for after a stop."""
        if self.minutes is not None:
            self.saved_at = self.now()
            spent = self.before + self.saved_at - self.began
            self.folder.write_json(FILE, {"spent": round(spent, 1), "decided": self.decided})

    def with_saves(self, callbacks: Callbacks) -> Callbacks:
        """Who watches, and now and then has what is spent written down."""

        def often() -> None:
            if self.now() - self.saved_at >= OFTEN:
                self.save()

        def progress(what: str, done: int, total: int) -> None:
            callbacks.progress(what, done, total)
            often()

        listeners = [*callbacks.listeners, lambda event: often()]
        return replace(callbacks, progress=progress, listeners=listeners)

    def decide(
        self,
        training: str,
        done: int,
        choose: Callable[[], int],
        usual: int,
        discarded: bool | None = None,
    ) -> int:
        """What was decided after so many epochs, or is now; what is not usual is logged."""
        if self.minutes is None:
            return usual
        key = _key(training, done)
        if key not in self.decided:
            self.decided[key] = self.folder.processes.agreed(choose)
        self.save()
        if (chosen := self.decided[key]) != usual:
            event = BudgetDecided(training, int(chosen), done, discarded)
            if self.folder.writes:
                append(self.folder.file("events.jsonl"), event)
            self.callbacks.log(event)
        return chosen

    def epochs_of(self, name: str, epochs: int) -> int:
        """Those that a training of so many was left with."""
        for done in range(1, epochs):
            epochs = self.decided.get(_key(name, done), epochs)
        return epochs

    def allows(self, what: str, minutes: float | None, after: float, fraction: float = 1.0) -> bool:
        """Whether something can be done, or a share of it, and evaluated. minutes: it is to take;
        after: those to be left for what follows."""
        needed = 60 * (fraction * (minutes or 0) + after)
        return bool(self.decide(what, 0, lambda: self.left >= needed, True))


class Length(LoopCallback):
    """How many epochs a training has: fewer than planned where the minutes would not last.

    Args:
        after: Minutes to be left for what follows.
        again: What was decided before a stop is logged again, because the run's event log has
            lost it.
        at_once: A training that would be shorter than planned ends, because it is of no use.
    """

    def __init__(
        self,
        time_budget: TimeBudget,
        name: str,
        after: float,
        again: bool = False,
        at_once: bool = False,
    ) -> None:
        self.time_budget, self.name, self.after = time_budget, name, after
        self.again, self.at_once = again, at_once
        self.began: float | None = None
        self.done = 0

    def on_start(self, loop: "TrainingLoop", is_new: bool) -> None:
        loop.set_epochs(self.resume(loop.trainer.place.epoch, loop.epochs))

    def before_epoch(self, loop: "TrainingLoop") -> None:
        self.began = self.time_budget.now() if self.began is None else self.began

    def on_epoch(self, loop: "TrainingLoop", event: Epoch) -> Epoch:
        loop.set_epochs(self.next(loop.trainer.place.epoch, loop.epochs))
        return event

    def resume(self, done: int, epochs: int) -> int:
        """How many epochs were decided before a stop, after so many."""
        self.done = done
        for number in range(1, done + 1):
            if self.again and _key(self.name, number) in self.time_budget.decided:
                self._decide(number, lambda: 0, epochs)  # it is decided: only logged again
            epochs = self.time_budget.decided.get(_key(self.name, number), epochs)
        return epochs

    def next(self, done: int, epochs: int) -> int:
        """After one more epoch, the `done`-th of so many."""
        assert self.began is not None, "an epoch was trained"
        each = (self.time_budget.now() - self.began) / (done - self.done)

        def fitting() -> int:
            left = self.time_budget.left - 60 * self.after
            if (epochs - done) * each <= LATE * left:
                return epochs
            if self.at_once:
                return done
            return min(epochs, max(done, done + int(left / each)))

        return self._decide(done, fitting, epochs)

    def _decide(self, done: int, choose: Callable[[], int], usual: int) -> int:
        discarded = True if self.at_once else None
        return self.time_budget.decide(self.name, done, choose, usual, discarded)


def _key(training: str, done: int) -> str:
    return f"{training} after {done}"
