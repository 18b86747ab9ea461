"""The tables of a study: scores, averages, conclusions, validity checks."""

import math
from collections.abc import Sequence

from rich import table as rich_table
from rich.console import Group

from unseen.core.statistics import Spread
from unseen.reports.score_tables import metric_title, row_title
from unseen.reports.tables import Cell, Table
from unseen.studies.results import Results, Run, Standing, standings
from unseen.studies.validity_checks import BOTH, Compared, ValidityCheck, effect_text
from unseen.training.result import Result

INTERVAL = "±: half of the 95 % interval of the mean over runs"
DEVIATION = "s: standard deviation of one run"
CONCLUSIONS = (
    "Effect: points, paired by seed, with its 95 % interval over seeds and test classes{family}. "
    "Detectable: the minimum detectable effect, which 80 % of such studies would see."
)
FAMILY = ", for all methods compared with the same one together"
MOST_COLUMNS = 3  # metrics that a terminal has room for
AVERAGES = ("queries", "classes", "head", "middle", "tail")
AVERAGED = (
    "{metric} averaged over queries, over classes, and over the classes of each third by size, the "
    "largest first; mean over runs."
)


def study_table(
    results: Results, metrics: Sequence[str] | None = None, in_full: bool = True
) -> Table:
    """Scores in percent: the mean over runs (seeds, folds) with the half width of its 95 %
    interval. A method that failed says so instead of a number, and a study that selected on test
    classes says so in every rendering.

    Args:
        in_full: also the standard deviation of a run.
    """
    metrics, rows = list(metrics or results.metrics()), standings(results)
    titles = [f"{metric_title(metric)} %" for metric in metrics]
    some = next((run.result for run in results.runs if run.result), None)
    return Table(
        [results.plan.compared, *titles, "runs", *["tuning runs"] * bool(results.searches)],
        [
            [
                name_of(row, rows, some),
                *(_score(row, row.scores.get(metric), in_full) for metric in metrics),
                runs_text(row),
                *[str(row.tuning_runs or "")] * bool(results.searches),
            ]
            for row in rows
        ],
        "\n".join(_notes(results, rows, metrics, in_full)),
        marks=[_mark(row) for row in rows],
        groups=[row.experiment for row in rows] if len(results.experiments()) > 1 else (),
        group_head="experiment",
        numbers=range(1, 1 + len(metrics)),
        warning=" ".join(results.warnings),
    )


def _notes(
    results: Results, rows: Sequence[Standing], metrics: Sequence[str], in_full: bool
) -> list[str]:
    """What a reader must know: the signs in the table, explained, and warnings."""
    shown = [row.scores[metric] for row in rows for metric in metrics if metric in row.scores]
    notes = []
    if any(not math.isnan(score.std) for score in shown):
        notes.append(f"{INTERVAL}; {DEVIATION}." if in_full else f"{INTERVAL}.")
    notes += results.warnings
    selected = [
        f"{in_experiment(r.experiment, r.method)} {r.at_start} of {r.done}"
        for r in rows
        if r.at_start
    ]
    if selected:
        notes.append(f"Runs that kept the weights they began with: {', '.join(selected)}.")
    if any(row.failed for row in rows):
        notes.append("Failed runs are left out of the means, which flatters the method.")
    return notes


def name_of(row: Standing, rows: Sequence[Standing], some: Result | None = None) -> str:
    """The method; of a baseline whose it is, where there are several: the largest group is that of
    all others."""
    if not row.is_baseline:
        return row.method
    title = row_title(row.method, some)
    if not row.of:
        return title
    alike = [r for r in rows if (r.experiment, r.method) == (row.experiment, row.method)]
    largest = max(alike, key=lambda each: len(each.of))
    is_rest = row is largest and len(row.of) > 1
    return f"{title} ({'others' if is_rest else ', '.join(row.of)})"


def _mark(row: Standing) -> str:
    if row.failed and not row.done:
        return "failed"
    return "best" if row.is_best else "baseline" if row.is_baseline else ""


def _score(row: Standing, spread: Spread | None, in_full: bool) -> Cell:
    """61.4 ±0.8 (s 0.3); `failed` where every run failed."""
    if spread is None:
        return Cell("failed" if row.failed and not row.done else "–")
    text = f"{100 * spread.mean:.1f}"
    if math.isnan(spread.std):
        return Cell(text)
    deviation = f" (s {100 * spread.std:.1f})" if in_full else ""
    return Cell(text, f"±{50 * (spread.high - spread.low):.1f}{deviation}")


def runs_text(row: Standing) -> str:
    planned = "" if row.done + row.failed == row.planned else f" of {row.planned}"
    failed = f", {row.failed} failed" if row.failed else ""
    return f"{row.done}{planned}{failed}"


def terminal(results: Results, metrics: Sequence[str] | None = None) -> rich_table.Table:
    """For the terminal: the first metrics only, experiments as headings, fits 80 columns."""
    shown = metrics or results.metrics()[:MOST_COLUMNS]
    return study_table(results, shown, in_full=False).terminal(results.plan.name)


def markdown(results: Results, metrics: Sequence[str] | None = None) -> str:
    """For a README or an issue."""
    tables = [study_table(results, metrics), *_averages_and_conclusions(results)]
    lines = [line for table in tables for line in table.markdown()]
    return "\n".join(lines).rstrip("\n") + "\n"


def latex(results: Results, metrics: Sequence[str] | None = None) -> str:
    """For a paper: a `tabular` for the booktabs package."""
    tables = [study_table(results, metrics), *evaluated_tables(results.comparisons())]
    return "\n\n".join("\n".join(table.latex()) for table in tables) + "\n"


def _averages_and_conclusions(results: Results) -> list[Table]:
    return [*averages_tables(results), *evaluated_tables(results.comparisons())]


def evaluated_terminal(results: Results) -> Group:
    """Averages, conclusions and validity checks for the terminal."""
    return Group(*(table.terminal() for table in _averages_and_conclusions(results)))


def averages_tables(results: Results) -> list[Table]:
    """The study's metric averaged over queries, over classes and over thirds of the classes by
    their size, mean over runs; none where they do not differ."""
    metric, rows, differs = results.plan.metric, [], False
    for row in standings(results):
        runs = [run for run in results.of(row.experiment, row.method) if run.result is not None]
        if row.is_baseline or not runs:
            continue
        means = [_mean_over(runs, metric, which) for which in AVERAGES]
        numbers = [f"{100 * mean:.1f}" for mean in means if not math.isnan(mean)]
        differs |= len(set(numbers)) > 1
        texts = ["–" if math.isnan(mean) else f"{100 * mean:.1f}" for mean in means]
        rows.append([in_experiment(row.experiment, row.method), *texts])
    heads = [results.plan.compared, *(f"{which} %" for which in AVERAGES)]
    return [Table(heads, rows, AVERAGED.format(metric=metric_title(metric)))] if differs else []


def _mean_over(runs: Sequence[Run], metric: str, which: str) -> float:
    """Of one of the averages, over runs; NaN where no run has it."""
    values = []
    for run in runs:
        assert run.result is not None, "only runs with a result"
        result = run.result.score("trained", metric)
        sizes = {
            third.name: third.metrics.get(metric, math.nan) for third in run.result.thirds or ()
        }
        if result is not None:
            known = {"queries": result.value, "classes": result.class_average} | sizes
            values.append(known.get(which, math.nan))
    numbers = [value for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else math.nan


def evaluated_tables(result: Sequence[Compared]) -> list[Table]:
    """The comparisons with their conclusions, then the validity checks they need; none without
    any."""
    return [conclusion_table(result), validity_table(result)] if result else []


def conclusion_table(result: Sequence[Compared]) -> Table:
    """One row for each comparison; published effects where there are some."""
    is_published = any(not math.isnan(each.published) for each in result)
    heads = ["method", "against", "effect", "detectable", *["published"] * is_published]
    rows: list[list[Cell | str]] = []
    for each in result:
        seen = math.nan if each.effect is None else 100 * each.effect.detectable
        published = "–" if math.isnan(each.published) else f"{each.published:+.1f}"
        rows.append(
            [
                in_experiment(each.experiment, each.method),
                each.against,
                effect_text(each.effect),
                "–" if math.isnan(seen) else f"{seen:.1f}",
                *[published] * is_published,
                Cell(each.conclusion, status="" if each.is_conclusive else "bad"),
            ]
        )
    family = FAMILY if any(each.pairs > 1 for each in result) else ""
    return Table([*heads, "conclusion"], rows, CONCLUSIONS.format(family=family))


def validity_table(result: Sequence[Compared]) -> Table:
    """Each validity check of a method once; where several comparisons need it, one that fails."""
    shown: dict[tuple[str, str], ValidityCheck] = {}
    for each in result:
        for check in each.validity_checks:
            method = f"{each.method}, {each.against}" if check.method == BOTH else check.method
            place = (in_experiment(each.experiment, method), check.name)
            if place not in shown or shown[place].passed:
                shown[place] = check
    rows: list[list[Cell | str]] = [
        [*place, check.value, passed_cell(f"no: {check.why}" if check.reasons else "")]
        for place, check in shown.items()
    ]
    return Table(["method", "check", "value", "passed"], rows, "A conclusion needs all of them.")


def passed_cell(failure: str) -> Cell:
    """What validity checks say."""
    return Cell(failure, status="bad") if failure else Cell("passed", status="good")


def in_experiment(experiment: str, method: str) -> str:
    """A method with its experiment, where there are several."""
    return f"{experiment}: {method}" if experiment else method
