"""The minutes of a run: what is spent, over all its stops, and what was decided by it.

Every decision by the clock is made once, kept in `clock.json` and told in the journal; a run that
goes on after a stop reads it back, so that it ends as it would have without the stop. The clock
only shortens what was planned (`budget.py`): where the plan holds, it decides nothing.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from unseen.experiment.run_context import Watch
from unseen.training.events import ClockDecided
from unseen.training.journal import append
from unseen.training.run_folder import RunFolder

FILE = "clock.json"
LATE = 1.05  # a training is shortened where it would take longer than this share of what is left
LEAST = 1 / 3  # of a rung's planned minutes: with less left it is not begun, a head without all
AFTER = 0.2  # of the minutes: for judging and the report, where no plan says it
OFTEN = 20.0  # seconds after which what is spent is written down


class Clock:
    """minutes None: there is always time. now: seconds; began: when the run did, by `now`."""

    def __init__(
        self,
        folder: RunFolder,
        watch: Watch,
        minutes: float | None,
        began: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.watch, self.minutes, self.now = folder, watch, minutes, now
        self.began = now() if began is None else began
        self.kept_at = now()
        kept: dict[str, Any] = folder.read_json(FILE) if folder.holds(FILE) else {}
        self.before: float = kept.get("spent", 0.0)
        self.decided: dict[str, Any] = kept.get("decided", {})

    @property
    def left(self) -> float:
        """Seconds; infinite without a budget."""
        if self.minutes is None:
            return float("inf")
        return 60 * self.minutes - self.before - (self.now() - self.began)

    def keep(self) -> None:
        """Writes down what is spent, for after a stop."""
        if self.minutes is not None:
            self.kept_at = self.now()
            spent = self.before + self.kept_at - self.began
            self.folder.write_json(FILE, {"spent": round(spent, 1), "decided": self.decided})

    def kept_by(self, watch: Watch) -> Watch:
        """Who watches, and now and then has what is spent written down."""

        def often() -> None:
            if self.now() - self.kept_at >= OFTEN:
                self.keep()

        def progress(what: str, done: int, total: int) -> None:
            watch.progress(what, done, total)
            often()

        listeners = [*watch.listeners, lambda event: often()]
        return replace(watch, progress=progress, listeners=listeners)

    def decide(self, what: str, choose: Callable[[], Any], usual: Any) -> Any:
        """What was decided, or is now; what is not usual is told."""
        if self.minutes is None:
            return usual
        if what not in self.decided:
            self.decided[what] = self.folder.processes.agreed(choose)
        self.keep()
        if (chosen := self.decided[what]) != usual:
            event = ClockDecided(what, chosen)
            if self.folder.writes:
                append(self.folder.file("journal.jsonl"), event)
            self.watch.tell(event)
        return chosen

    def epochs_of(self, name: str, epochs: int) -> int:
        """Those that a training of so many was left with."""
        for done in range(1, epochs):
            epochs = self.decided.get(_shortened(name, done), epochs)
        return epochs

    def allows(self, what: str, minutes: float | None, after: float, share: float = 1.0) -> bool:
        """Whether something can be done, or a share of it, and judged. minutes: it is to take;
        after: those to be left for what follows."""
        needed = 60 * (share * (minutes or 0) + after)
        return bool(self.decide(f"{what} begins", lambda: self.left >= needed, True))


class Length:
    """How many epochs a training has: fewer than planned where the minutes would not last. again:
    what was decided before a stop is told again, because the run's journal has lost it. at_once: a
    training that would be shorter than planned ends, because it is of no use."""

    def __init__(
        self, clock: Clock, name: str, after: float, again: bool = False, at_once: bool = False
    ) -> None:
        self.clock, self.name, self.after = clock, name, after
        self.again, self.at_once = again, at_once
        self.began, self.done = clock.now(), 0

    def begun(self, done: int, epochs: int) -> int:
        """Before the next epoch; so many were done before a stop."""
        self.began, self.done = self.clock.now(), done
        for what in (_shortened(self.name, number) for number in range(1, done + 1)):
            if self.again and what in self.clock.decided:
                self.clock.decide(what, lambda: None, epochs)
            epochs = self.clock.decided.get(what, epochs)
        return epochs

    def next(self, done: int, epochs: int) -> int:
        """After one more epoch, the `done`-th of so many."""
        each = (self.clock.now() - self.began) / (done - self.done)

        def fitting() -> int:
            left = self.clock.left - 60 * self.after
            if (epochs - done) * each <= LATE * left:
                return epochs
            if self.at_once:
                return done
            return min(epochs, max(done, done + int(left / each)))

        return int(self.clock.decide(_shortened(self.name, done), fitting, epochs))


def _shortened(name: str, done: int) -> str:
    return f"epochs of {name} after {done}"
