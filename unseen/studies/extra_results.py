"""What the runs of a study were evaluated by beside their scores (`shots = [5]`, `open_set = true`
in its [config]): a table of few shots, a table of open sets, means over seeds and folds."""

import math
from collections.abc import Mapping, Sequence

from unseen.core.statistics import Spread, over_seeds
from unseen.evaluation.metric_names import OPEN_SET
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.runs.few_shots import read_few_shots
from unseen.runs.open_set_of_run import CALIBRATED, read_open_set
from unseen.studies.results import Results
from unseen.studies.study_tables import in_experiment
from unseen.training.run_folder import RunFolder

Values = dict[str, float]
SHOTS = {name: name for name in ("before", "after", "gain")}
AT_THRESHOLD = ("BAKS", "BAUS", "their mean")
SEEDS = "±: 95 % interval over seeds."
OF_SHOTS = (
    "{metric} before and after so many labelled images of each class have adapted the last layer "
    f"(lora: adapters beside all), in percent. {SEEDS}"
)
OF_OPEN_SETS = (
    "Open set, half of the test classes not in the gallery, in percent. BAKS, BAUS and their "
    f"geometric mean at the threshold calibrated on validation classes. {SEEDS}"
)


def extra_tables(results: Results) -> list[Table]:
    """Those there is something to say in: a row for each method of each experiment."""
    metric = results.plan.metric
    shots: dict[str, dict[str, Spread]] = {}
    open_sets: dict[str, dict[str, Spread]] = {}
    for experiment in results.experiments():
        for method in results.methods():
            runs = [run for run in results.of(experiment, method) if run.state == "done"]
            folders, title = (
                [RunFolder(run.folder) for run in runs],
                in_experiment(experiment, method),
            )
            by_number = [shots_of(folder, metric) for folder in folders]
            for number in dict.fromkeys(number for each in by_number for number in each):
                known = [each[number] for each in by_number if number in each]
                shots[f"{title}, shots {number}"] = spreads(known)
            open_sets[title] = spreads([open_set_of(folder, CALIBRATED) for folder in folders])
    columns = {name: metric_title(name) for name in OPEN_SET} | {n: n for n in AT_THRESHOLD}
    tables = [
        values_table(shots, SHOTS, OF_SHOTS.format(metric=metric_title(metric))),
        values_table(open_sets, columns, OF_OPEN_SETS),
    ]
    return [table for table in tables if table.rows]


def shots_of(folder: RunFolder, metric: str) -> dict[str, Values]:
    """By the number of shots, the smallest first."""
    several = sorted(read_few_shots(folder).items(), key=lambda item: item[1].shots)
    gains = {number: each.gain[metric] for number, each in several if metric in each.gain}
    return {
        number: {"before": gain.before, "after": gain.after, "gain": gain.after - gain.before}
        for number, gain in gains.items()
    }


def open_set_of(folder: RunFolder, threshold: str) -> Values:
    """Scores without a threshold, then those at one."""
    result = read_open_set(folder)
    if result is None:
        return {}
    values, at = {name: score.value for name, score in result.scores.items()}, []
    if point := result.at.get(threshold):
        at = [point.baks, point.baus, point.balance]
    return values | dict(zip(AT_THRESHOLD, at, strict=False))


def spreads(runs: Sequence[Values]) -> dict[str, Spread]:
    """Of every value over the runs that have it."""
    keys = dict.fromkeys(key for values in runs for key in values)
    return {key: over_seeds([values[key] for values in runs if key in values]) for key in keys}


def values_table(
    rows: Mapping[str, Mapping[str, Spread]],
    columns: Mapping[str, str],
    caption: str,
    sign: str = "",
) -> Table:
    """Methods that have values, in percent. columns: key of a value -> its head; those of a gain
    have a sign, or all."""
    texts = [
        [method, *(spread_text(values.get(key), "+" if "gain" in key else sign) for key in columns)]
        for method, values in rows.items()
        if values
    ]
    return Table(["method", *columns.values()], texts, caption)


def spread_text(value: Spread | None, sign: str = "") -> str:
    """61.4 ± 0.8, in percent; without an interval where there is none."""
    if value is None:
        return "–"
    half = 50 * (value.high - value.low)
    spread = "" if math.isnan(half) else f" ± {half:.1f}"
    return f"{100 * value.mean:{sign}.1f}{spread}"
