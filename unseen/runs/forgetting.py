"""Forgetting: what training changed on other domains, in forgetting.json of the run folder."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unseen.evaluation.training_gain import FIRST, Gain
from unseen.runs.evaluate_run import evaluate_run
from unseen.runs.other_data import on_other_data
from unseen.runs.prepare import Callbacks, reopen
from unseen.training.result import Result, result_of
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import read_selection

FILE = "forgetting.json"


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
class Forgetting:
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
        count = len(self.elsewhere)
        where = "the other domain" if count == 1 else f"{count} other domains, on average"
        return (
            f"Training lost more elsewhere than it won at home: {-100 * lost:+.1f} points of "
            f"recall@1 on {where}, {100 * self.home.change:+.1f} at home."
        )


def forgetting(path: Path, also: Sequence[str], callbacks: Callbacks) -> Forgetting:
    """Evaluates a run on other data, one after the other, and keeps the comparison.

    Each domain is evaluated before and after the training, on all its classes that the run was
    not trained on (`other_data.py`). Home is the test classes of the run itself.

    Example:
        forgetting(Path("runs/birds"), ["cars/", "groceries/"], callbacks).warning
    """
    folder = RunFolder(path)
    home = result_of(path) if folder.is_started else None
    if home is None or not home.gain:
        context, folder = reopen(path, callbacks)
        home = evaluate_run(context, folder, read_selection(folder), "unseen evaluate", callbacks)
    elsewhere = []
    for data in also:
        context, folder = on_other_data(path, data, callbacks)
        purpose = f"unseen evaluate run --on {shlex.quote(data)}"
        result = evaluate_run(context, folder, read_selection(folder), purpose, callbacks, data)
        elsewhere.append(_domain(result))
    matches = Forgetting(_domain(home), elsewhere)
    folder.write_json(FILE, matches)
    return matches


def read_forgetting(folder: RunFolder) -> Forgetting | None:
    """None before it was asked for."""
    return folder.read(FILE, Forgetting) if folder.has(FILE) else None


def _domain(result: Result) -> Domain:
    if not result.gain or FIRST not in result.gain:
        raise ValueError("forgetting compares recall@1: the run's metrics must have it")
    return Domain(result.data.name, result.split.test_classes or 0, result.gain)
