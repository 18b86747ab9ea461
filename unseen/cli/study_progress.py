"""The progress of a study: a live table on a terminal, a line for each change elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.text import Text

from unseen.cli.terminal import console
from unseen.studies import study_tables
from unseen.studies.engine import StudyProgress
from unseen.studies.results import read


@contextmanager
def progress_of(out: Path | None) -> Iterator[Callable[[StudyProgress], None]]:
    """A line of progress with the time left, the failures, and the table as it grows."""
    if not console.is_terminal:
        yield _message_in_lines()
        return
    pace, last = _Pace(), -1
    content: list[object] = [Text("starting workers ...")]
    with Live(Group(), console=console, refresh_per_second=2, transient=True) as live:
        live.update(Group(*content))  # type: ignore[arg-type]

        def progress(now: StudyProgress) -> None:
            nonlocal last, content
            content[0] = Text(_line(now, pace))
            if now.ended != last:
                sentences = [
                    Text(f"failed: {title}: {error}", style="red")
                    for title, error in now.failed.items()
                ]
                table = [study_tables.terminal(read(out))] if out is not None and now.ended else []
                content = [content[0], *sentences, *table]
                last = now.ended
            live.update(Group(*content))  # type: ignore[arg-type]

        yield progress


def _message_in_lines() -> Callable[[StudyProgress], None]:
    """In a pipe or a file nothing is replaced: a line when a run begins, ends or fails."""
    console.print("starting workers ...")
    pace, shown = _Pace(), list[StudyProgress]()

    def progress(now: StudyProgress) -> None:
        if now in shown[-1:]:
            return
        failed = shown[-1].failed if shown else {}
        shown.append(now)
        console.print(_line(now, pace))
        for title in now.failed.keys() - failed.keys():
            console.print(f"failed: {title}: {now.failed[title]}")

    return progress


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
