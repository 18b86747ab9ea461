"""What the runs of a study were evaluated by beside their scores (`shots = [5]`, `open_set = true`
in its [config]): a table of few shots, a table of open sets, means over seeds and folds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unseen.core.statistics import Interval, over_seeds
from unseen.evaluation.metric_names import OPEN_SET
from unseen.evaluation.open_set import OpenSet, RejectionPoint
from unseen.evaluation.training_gain import Gain
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.runs.few_shots import FewShots, read_few_shots
from unseen.runs.open_set_of_run import CALIBRATED, read_open_set
from unseen.studies.results import Results
from unseen.training.run_folder import RunFolder

SIDES = ("before", "after")


@dataclass(frozen=True)
class Evaluated:
    """The runs of a method in an experiment: shots by their name, open sets; one for each run."""

    experiment: str
    method: str
    shots: dict[str, list[FewShots]]
    open_sets: list[OpenSet]

    @property
    def title(self) -> str:
        return f"{self.experiment}: {self.method}" if self.experiment else self.method


def extra_results(results: Results) -> list[Evaluated]:
    """Of every method in every experiment that has some."""
    result = []
    for experiment in results.experiments():
        for method in results.methods():
            runs = [run for run in results.of(experiment, method) if run.state == "done"]
            folders = [RunFolder(run.folder) for run in runs]
            shots: dict[str, list[FewShots]] = {}
            for folder in folders:
                for number, each in read_few_shots(folder).items():
                    shots.setdefault(number, []).append(each)
            open_sets = [one for folder in folders if (one := read_open_set(folder)) is not None]
            if shots or open_sets:
                result.append(Evaluated(experiment, method, shots, open_sets))
    return result


def extra_tables(result: Sequence[Evaluated], metric: str) -> list[Table]:
    """Those there is something to say in."""
    tables = [shots_table(result, metric), open_set_table(result)]
    return [table for table in tables if table.rows]


def shots_table(result: Sequence[Evaluated], metric: str) -> Table:
    """Before and after, and the gain with its interval."""
    rows = []
    for evaluated in result:
        for number, runs in sorted(evaluated.shots.items(), key=lambda item: item[1][0].shots):
            gains = [each.gain[metric] for each in runs if metric in each.gain]
            if gains:
                before, after = (_mean([getattr(g, side) for g in gains]) for side in SIDES)
                gain = mean_gain(gains)
                added, low, high = (f"{100 * v:+.1f}" for v in (gain.value, gain.low, gain.high))
                cells = [_cell(before), _cell(after), f"{added} ({low} … {high})"]
                rows.append([evaluated.title, number, *cells])
    caption = (
        f"{metric_title(metric)} before and after so many labelled images of each class have "
        "adapted the last layer (lora: adapters beside all), in percent; in brackets the 95 % "
        "interval, over episodes and classes, of several runs over these."
    )
    return Table(["method", "shots", "before", "after", "gain"], rows, caption)


def open_set_table(result: Sequence[Evaluated]) -> Table:
    """Scores without a threshold, then at the calibrated one."""
    rows = []
    for evaluated in result:
        sets = evaluated.open_sets
        scores = [_mean([each.scores[name].value for each in sets]) for name in OPEN_SET]
        at = [each.at[CALIBRATED] for each in sets if CALIBRATED in each.at]
        rows += [[evaluated.title, *map(_cell, [*scores, *_at(at)])]] if sets else []
    heads = [*map(metric_title, (*OPEN_SET, "baks", "baus")), "their mean"]
    caption = (
        "Open set, half of the test classes not in the gallery, in percent. BAKS, BAUS and their "
        "geometric mean at the threshold calibrated on validation classes."
    )
    return Table(["method", *heads], rows, caption)


def mean_gain(gains: Sequence[Gain]) -> Interval:
    """Of one run as it is; of several the mean, with its interval over runs."""
    differences = [gain.after - gain.before for gain in gains]
    if len(gains) == 1:
        return Interval(differences[0], gains[0].low, gains[0].high)
    spread = over_seeds(differences)
    return Interval(spread.mean, spread.low, spread.high)


def _at(points: Sequence[RejectionPoint]) -> list[float]:
    rows = [(point.baks, point.baus, point.balance) for point in points]
    return [_mean(list(column)) for column in zip(*rows, strict=True)] or [math.nan] * 3


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _cell(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.1f}"
