"""What commands share on the terminal: the console and the progress of long work."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from unseen.cli.console import console
from unseen.core.names import few
from unseen.data.base import lost_line
from unseen.data.folder import nesting
from unseen.runs.prepare import Callbacks
from unseen.training.events import (
    BudgetDecided,
    DescriptorChosen,
    Epoch,
    Evaluated,
    Event,
    Note,
    Refitted,
    Resumed,
    StageEnded,
    StageStarted,
    Start,
    Step,
    StoppedEarly,
)

NAMED = 5  # unreadable files named one by one


def command_line() -> str:
    """The command as typed, with the program by its name."""
    return shlex.join(["unseen", *sys.argv[1:]])


def log_left_out(files: Sequence[str], number: int | None = None) -> None:
    """Files that cannot be read: the first few by name; `number`: of all, if `files` are some."""
    for file in files[:NAMED]:
        console.print(Text.assemble(("  cannot be read, left out: ", "yellow"), file))
    if (more := (number or len(files)) - NAMED) > 0:
        console.print(f"  and {more:,} more that cannot be read", style="yellow")


def print_labels(labels: Sequence[str | None], words: Sequence[str], levels: int) -> None:
    """How many labels the images that words name have, with three examples, and what to know of
    folders in folders."""
    names = sorted({label for label in labels if label is not None})
    without = sum(label is None for label in labels)
    line = f"{len(names):,} label{'' if len(names) == 1 else 's'}"
    line += f" ({few(names)})" if names else ""
    console.print(line + (f"; {without:,} images have none" if without else ""))
    for note in nesting(names, levels) if any(Path(word).is_dir() for word in words) else ():
        console.print(f"  {note}".replace("data.levels=", "--levels "), style="yellow")


def log_lost_labels(lost: Iterable[str | None], every: Iterable[str | None]) -> None:
    """Labels that count no more, because no file of theirs can be read. lost: of each file that
    cannot; every: of all files."""
    unread, counts = Counter(lost), Counter(every)
    if names := sorted(name for name in unread if name and unread[name] == counts[name]):
        console.print(f"  {lost_line(names)}", style="yellow")


class Display:
    """Turns a run's events and progress into bars and lines."""

    def __init__(self, bars: Progress, epochs: int) -> None:
        self.bars, self.epochs = bars, epochs
        self.training: TaskID | None = None
        self.steps = 0  # of one epoch
        self.tasks: dict[str, TaskID] = {}

    def start_training(self, steps_per_epoch: int) -> None:
        self.end_training()
        self.steps = steps_per_epoch
        self.training = self.bars.add_task("training", total=self.epochs * steps_per_epoch)

    def end_training(self) -> None:
        """Its bar makes room for what comes next."""
        if self.training is not None:
            self.bars.update(self.training, visible=False)

    def event(self, event: Event) -> None:
        say = self.bars.console.print
        match event:
            case Step() if self.training is not None:
                loss, rate = event.terms["total"], event.images_per_second
                name = f"training  loss {loss:.3f}  {rate:,.0f} images/s"
                self.bars.update(self.training, advance=1, description=name)
            case Resumed() if self.training is not None:
                say(f"resumed at step {event.step:,}, in epoch {event.epoch + 1}")
                self.bars.update(self.training, completed=event.step)
            case DescriptorChosen() | StageEnded():
                say(str(event))
            case Refitted():
                say(
                    f"once more on all {event.train_classes} training classes, for "
                    f"{event.epochs} epoch{'s' if event.epochs > 1 else ''}"
                )
                self.epochs = event.epochs
                self.start_training(event.steps)
            case StageStarted():
                start = f"from the weights of {event.start}" if event.start else "anew"
                say(f"stage {event.name}: {start}")
                self.epochs = event.epochs
                self.start_training(event.steps)
            case BudgetDecided():
                say(str(event), style="yellow")
                if event.epochs and self.training is not None:
                    self.epochs = event.epochs
                    self.bars.update(self.training, total=self.epochs * self.steps)
            case StoppedEarly() | Evaluated():
                self.end_training()
                say(str(event))
            case Note():
                say(event.text, style="dim")
            case Start():
                say(_scores_of(event, Text("before training")))
            case Epoch():
                place, loss = event.epoch + 1, event.train["loss"]
                line = Text(f"epoch {place:>3}/{self.epochs}  loss {loss:.3f}")
                _scores_of(event, line)
                if event.best:
                    line.append(f"  best by {event.by}", style="green")
                say(line)

    def warn(self, text: str) -> None:
        self.bars.console.print(text, style="yellow")

    def progress(self, what: str, done: int, total: int) -> None:
        """What has ended may begin again, with other items."""
        if what not in self.tasks:
            self.tasks[what] = self.bars.add_task(what, total=total)
        task = self.tasks[what]
        if done < self.bars.tasks[task].completed:
            self.bars.reset(task)
        self.bars.update(task, completed=done, total=total, visible=done < total)


def _scores_of(event: Start | Epoch, line: Text) -> Text:
    """The line with the scores that were looked at, if any were."""
    on, scores = (
        ("test", event.test) if event.validation is None else ("validation", event.validation)
    )
    if scores is not None and event.train is not None:
        line.append(
            f"  recall@1 seen {100 * event.train['recall@1']:.1f}  "
            f"{on} {100 * scores['recall@1']:.1f}  mAP@R {100 * scores['map_at_r']:.1f}"
        )
    return line


def stages(callbacks: Callbacks) -> Callable[[str], None]:
    """Shows one stage of some work after the other; the next one ends the last."""
    current: list[str] = []

    def say(what: str) -> None:
        for ended in current:
            callbacks.progress(ended, 1, 1)
        current[:] = [what]
        callbacks.progress(what, 0, 1)

    return say


@contextmanager
def display(epochs: int = 0) -> Iterator[tuple[Display, Callbacks]]:
    """Bars with time left while the block runs."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    off = not console.is_interactive  # into a file or a pipe: bars that end leave an empty line
    with Progress(*columns, console=console, transient=True, disable=off, expand=True) as bars:
        shown = Display(bars, epochs)
        yield shown, Callbacks([shown.event], shown.progress, shown.warn)
