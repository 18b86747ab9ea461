"""The progress of a study: in place on a terminal, a line for each change elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.text import Text

from unseen.cli.terminal import console
from unseen.studies.engine import StudyProgress


@contextmanager
def progress_of(_folder: Path | None = None) -> Iterator[Callable[[StudyProgress], None]]:
    """A line with what runs and the time left, and one for each failure."""
    pace, shown, start = _Pace(), list[StudyProgress](), "starting workers ..."
    with console.status(start) as status:  # shows nothing in a pipe or a file
        if not console.is_terminal:
            console.print(start)

        def progress(now: StudyProgress) -> None:
            if now in shown[-1:]:
                return
            failed = shown[-1].failed if shown else {}
            shown.append(now)
            line = Text(_line(now, pace))
            status.update(line)
            if not console.is_terminal:
                console.print(line)
            for title in now.failed.keys() - failed.keys():
                console.print(f"failed: {title}: {now.failed[title]}", style="red")

        yield progress


class _Pace:
    """Seconds from one end of a run to the next, of the later half of those that ended: trials come
    first and are shorter."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, float]] = []  # how many, when

    def of(self, ended: int) -> float | None:
        if not self.ends or ended > self.ends[-1][0]:
            self.ends.append((ended, time.monotonic()))
        if len(self.ends) < 2:
            return None
        (first, began), (last, now) = self.ends[(len(self.ends) - 1) // 2], self.ends[-1]
        return (now - began) / (last - first)


def _line(now: StudyProgress, pace: _Pace) -> str:
    left, seconds = "", pace.of(now.ended)
    if seconds is not None and now.ended < now.total:
        left = f", {timedelta(seconds=round(seconds * (now.total - now.ended)))} left"
    running = f"; running: {' | '.join(now.running)}" if now.running else ""
    return f"{now.ended} of {now.total} runs{left}{running}"
