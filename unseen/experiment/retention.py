"""Retention: what training at home did to other domains; retention.json of the run's folder.

    retention(Path("runs/birds"), ["cars/", "groceries/"], watch).warning

Each domain is judged before and after the training, on all its classes that the run was not trained
on (`other_data.py`); a reading of its own for each. Home is the run's own test classes, as it was
judged on them at its end.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unseen.evaluation.gain import FIRST, Gain
from unseen.experiment.judge import judge
from unseen.experiment.other_data import on_other_data
from unseen.experiment.run_context import Watch, reopen
from unseen.training.result import Result, result_of
from unseen.training.run_folder import RunFolder
from unseen.training.selection import read_selection

FILE = "retention.json"


@dataclass(frozen=True)
class Domain:
    """Before and after, with the interval of the difference over classes."""

    data: str
    classes: int
    gain: dict[str, Gain]

    @property
    def change(self) -> float:
        """Of recall@1."""
        return self.gain[FIRST].after - self.gain[FIRST].before


@dataclass(frozen=True)
class Retention:
    """What training won at home and what it did elsewhere."""

    home: Domain
    elsewhere: list[Domain]

    @property
    def change_elsewhere(self) -> float:
        """Of recall@1, the mean over the other domains."""
        return sum(domain.change for domain in self.elsewhere) / len(self.elsewhere)

    @property
    def warning(self) -> str | None:
        """Where training lost more elsewhere than it won at home."""
        lost = -self.change_elsewhere
        if lost <= max(0.0, self.home.change):
            return None
        where = (
            "the other domain"
            if len(self.elsewhere) == 1
            else (f"{len(self.elsewhere)} other domains, on average")
        )
        return (
            f"Training lost more elsewhere than it won at home: {-100 * lost:+.1f} points of "
            f"recall@1 on {where}, {100 * self.home.change:+.1f} at home."
        )


def retention(path: Path, also: Sequence[str], watch: Watch) -> Retention:
    """Judges a run on other data, one after the other, and keeps the comparison."""
    folder = RunFolder(path)
    home = result_of(path) if folder.is_started else None
    if home is None or not home.gain:
        context, folder = reopen(path, watch)
        home = judge(context, folder, read_selection(folder), "unseen evaluate", watch)
    elsewhere = []
    for data in also:
        context, folder = on_other_data(path, data, watch)
        purpose = f"unseen evaluate --on {shlex.quote(data)}"
        result = judge(context, folder, read_selection(folder), purpose, watch, data)
        elsewhere.append(_domain(result))
    found = Retention(_domain(home), elsewhere)
    folder.write_json(FILE, found)
    return found


def read_retention(folder: RunFolder) -> Retention | None:
    """None before it was asked for."""
    return folder.read(FILE, Retention) if folder.has(FILE) else None


def _domain(result: Result) -> Domain:
    if not result.gain or FIRST not in result.gain:
        raise ValueError("retention compares recall@1: the run's metrics must have it")
    return Domain(result.data.name, result.split.test_classes or 0, result.gain)
