"""What `unseen evaluate` prints of few shots, of other domains and of an open set."""

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from unseen.cli.terminal import console, display
from unseen.evaluation.gain import Gain
from unseen.evaluation.open_set import OpenSet
from unseen.experiment.few_shots import FewShots, few_shots
from unseen.experiment.open_set import open_set_of
from unseen.experiment.retention import Retention, retention
from unseen.experiment.run_context import reopen
from unseen.experiment.shot_layers import LAST, noted
from unseen.reports.generalisation import open_set_title
from unseen.reports.tables import metric_title


@dataclass(frozen=True)
class Further:
    """What was asked for beside scores. adapt: what the shots do. time: a label column that splits
    the open set."""

    shots: int | None = None
    adapt: str = LAST
    also: tuple[str, ...] = ()
    open_set: bool = False
    time: str | None = None

    def __bool__(self) -> bool:
        return self.shots is not None or bool(self.also) or self.open_set

    def judge(self, run: Path, data: str | None) -> None:
        """Judges and prints, one after the other."""
        if self.also:
            with display() as (_, watch):
                kept = retention(run, self.also, watch)
            print_retention(kept)
        if self.shots is None and not self.open_set:
            return
        with display() as (_, watch):
            context, folder = reopen(run, watch, data)
            shown = self.shots and few_shots(context, folder, self.shots, watch, adapt=self.adapt)
            opened = open_set_of(context, folder, watch, self.time) if self.open_set else None
        if shown:
            print_shots(shown)
        if opened is not None:
            print_open_set(opened)


def print_shots(found: FewShots) -> None:
    """Before, after and the gain."""
    pictures = "picture" if found.shots == 1 else "pictures"
    of = f"{found.shots} {pictures} of a class{noted(found.adapt)}"
    table = Table(of, "before", "after", "gain")
    for metric, gain in found.gain.items():
        table.add_row(metric_title(metric), *_cells(gain))
    console.print(table)
    left = f"; {found.too_small} too small to give any" if found.too_small else ""
    console.print(
        f"means of {found.episodes} episodes, {found.classes} test classes{left}; the shots "
        "neither ask nor answer; 95 % interval over episodes and classes"
    )


def print_retention(found: Retention) -> None:
    """Home first, then the other domains, and what must be said."""
    table = Table("recall@1", "classes", "before", "after", "change")
    for place, domain in enumerate([found.home, *found.elsewhere]):
        name = f"{domain.data} (home)" if place == 0 else domain.data
        table.add_row(name, f"{domain.classes:,}", *_cells(domain.gain["recall@1"]))
    console.print(table)
    if found.warning:
        console.print(found.warning, style="yellow")


def print_open_set(found: OpenSet) -> None:
    """Scores without a threshold, then what each threshold does."""
    console.print(
        f"{found.how}: {found.known_queries:,} known queries of {found.known_classes} classes, "
        f"{found.unknown_queries:,} unknown of {found.unknown_classes}, {found.gallery:,} answers"
    )
    table = Table("open set", "%", "95 % interval over classes")
    for name, score in found.scores.items():
        interval = f"{100 * score.low:.1f} … {100 * score.high:.1f}"
        table.add_row(open_set_title(name), f"{100 * score.value:.1f}", interval)
    console.print(table)
    if found.at:
        at = Table("threshold", "similarity", "FAR", "DIR", "BAKS", "BAUS", "geometric mean")
        for name, point in found.at.items():
            shares = (point.far, point.dir, point.baks, point.baus, point.balance)
            at.add_row(name, f"{point.threshold:.4f}", *(f"{100 * v:.1f}" for v in shares))
        console.print(at)
    if found.groups:
        console.print(
            f"{found.groups.items:,} unknown queries fall into {found.groups.found} groups (they "
            f"have {found.groups.classes} classes): adjusted Rand index {found.groups.ari:.3f}"
        )


def _cells(gain: Gain) -> tuple[str, str, str]:
    change = f"{100 * (gain.after - gain.before):+.1f}"
    ends = f"{100 * gain.low:+.1f} … {100 * gain.high:+.1f}"
    return f"{100 * gain.before:.1f}", f"{100 * gain.after:.1f}", f"{change} ({ends})"
