"""Published values beside ours: a table, a figure, and how far the two orders agree.

Levels are not comparable (other network, other length of training); what can be compared is the
order of methods, by Spearman's rank correlation, and differences between two of them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import Spread
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.charts import Point, bars, point
from unseen.reproductions.numbers import PlannedRun, Printed
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run, Standing, gain, standings
from unseen.studies.study_figures import STYLE, Drawn
from unseen.studies.study_tables import name_of

Published = Mapping[str, Mapping[str, float]]  # row -> metric -> percent


def score_table(results: Results, published: Published, metrics: Sequence[str]) -> Table:
    """Ours with its interval, then the published value, for each metric; best of ours first."""
    heads = [results.plan.compared]
    for metric in metrics:
        heads += [f"{metric_title(metric)} %", "published"]
    rows = []
    ranked = standings(results)
    for row in ranked:
        name = name_of(row, ranked)
        cells = [f"{row.experiment}, {name}" if row.experiment else name]
        for metric in metrics:
            value = published.get(row.method, {}).get(metric)
            cells += [spread_text(row.scores.get(metric), row), number(value)]
        rows.append(cells)
    caption = (
        "±: half of the 95 % interval of the mean over seeds. Published: percent, as printed. A "
        "method that compares raw embeddings is evaluated by their Euclidean distance, and so is "
        "its untrained network."
    )
    return Table(heads, rows, caption)


def without_start_runs(results: Results) -> Results:
    """Runs that kept the weights they began with count as not done: they say nothing of a method,
    and no table, figure or claim has them."""
    runs = (
        replace(run, state="open", result=None, selection=None, per_class=None)
        if run.at_start
        else run
        for run in results.runs
    )
    return replace(results, runs=tuple(runs))


def start_section(results: Mapping[str, Results]) -> list[Section]:
    """The runs that kept their start, by study and method; none where all have left it."""
    everything = [run for result in results.values() for run in result.runs]
    at_start = sum(run.at_start for run in everything)
    if not at_start:
        return []
    rows = []
    for name, result in results.items():
        for row in standings(result):
            if row.at_start:
                rows.append([name, row.experiment, row.method, f"{row.at_start} of {row.done}"])
    message = (
        f"{at_start} of {len(everything)} runs kept the weights they began with, as no epoch was "
        "better. They count as not done: no table, figure or claim of this page has them."
    )
    heads = ["study", "experiment", "method", "runs that kept their start"]
    return [Section("Runs that kept their start", [message], [Table(heads, rows)])]


def above_start_message(results: Results, metric: str = "recall@1") -> list[str]:
    """How many methods are above their own untrained networks, each by its own distance."""
    changes = {
        method: gain([run for e in results.experiments() for run in results.of(e, method)],
                     "untrained", metric)
        for method in results.methods()
    }  # fmt: skip
    known = [each for each in changes.values() if each is not None and not math.isnan(each.value)]
    if not known:
        return []
    above = sum(each.low > 0 for each in known)
    higher = sum(each.value > 0 for each in known)
    return [
        f"{higher} of {len(known)} methods are above their own untrained network by "
        f"{metric_title(metric)}, {above} with an interval above 0."
    ]


def spread_text(spread: Spread | None, row: Standing | None = None) -> str:
    """61.4 ±0.8; of one run without an interval."""
    if spread is None:
        return "failed" if row is not None and row.failed else "–"
    half = 50 * (spread.high - spread.low)
    return f"{100 * spread.mean:.1f}" + ("" if math.isnan(half) else f" ±{half:.1f}")


def plain_text(spread: Spread) -> str:
    """0.461 ±0.012: a measure that is no percentage."""
    half = (spread.high - spread.low) / 2
    return f"{spread.mean:.3f}" + ("" if math.isnan(half) else f" ±{half:.3f}")


def missing_text(*groups: Sequence[Run]) -> str:
    """What stands for runs that have no score."""
    return "failed" if any(run.state == "failed" for runs in groups for run in runs) else "–"


def score_text(runs: Sequence[Run], metric: str) -> str:
    """61.4: the mean score of finished runs, in percent."""
    mean = mean_of(runs, metric)
    return missing_text(runs) if math.isnan(mean) else f"{100 * mean:.1f}"


def number(value: PlannedRun, digits: int = 1) -> str:
    """A published value as it is printed, or another number; a dash where there is none."""
    if isinstance(value, Printed):
        return value.text
    is_known = isinstance(value, float) and not math.isnan(value)
    return f"{value:.{digits}f}" if is_known else "–"


def bars_by_method(results: Results, published: Published, metric: str) -> Figure:
    """Ours and, where there are any, the published values by method, ours best first."""
    rows = [row for row in standings(results) if not row.is_baseline and metric in row.scores]
    ours = {r.method: point(r.method, results.of(r.experiment, r.method), metric) for r in rows}
    theirs = {m: Point(m, published[m][metric]) for m in ours if metric in published.get(m, {})}
    series = {"ours": ours} | ({"published": theirs} if theirs else {})
    return bars(series, results.plan.compared, f"{metric_title(metric)}, %")


def fisher(r: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a correlation by Fisher's transform (1.03: the factor for ranks)."""
    if abs(r) >= 1 or count < 4:
        return r, r
    half = 1.96 * 1.03 / math.sqrt(count - 3)
    return math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def baselines_message(results: Results, metric: str = "recall@1") -> list[str]:
    """What there is without training, by experiment where it differs; nothing before a run."""
    result: dict[str, list[float]] = {}
    rows = standings(results)
    for row in rows:
        if row.is_baseline and metric in row.scores:
            result.setdefault(name_of(row, rows), []).append(100 * row.scores[metric].mean)
    ends = {name: (f"{min(v):.1f}", f"{max(v):.1f}") for name, v in result.items()}
    words = [
        f"{n} {low}" + ("" if low == high else f" to {high}") for n, (low, high) in ends.items()
    ]
    return [f"Without training, {metric} in percent: {', '.join(words)}."] if words else []


def drawn(name: str, caption: str, draw: Callable[[], Figure]) -> Drawn:
    """A figure in the house's style."""
    with matplotlib.rc_context(STYLE):
        return Drawn(name, caption, draw())


def mean_of(runs: Sequence[Run], metric: str) -> float:
    """The mean score of finished runs; NaN without one."""
    result = [run.score(metric) for run in runs if run.state == "done"]
    return float(np.mean(result)) if result else math.nan


def rank_table(
    head: str,
    metrics: Mapping[str, str],
    rows: Sequence[tuple[str, Sequence[Run], Mapping[str, float]]],
    caption: str = "",
) -> Table:
    """Title, runs and published values of each row by metric (title -> name); published columns
    where something is printed."""
    is_published = any(known for _, _, known in rows)
    heads = [head]
    for title in metrics:
        heads += [f"{title} %", *["published"] * is_published]
    cells = []
    for name, runs, known in rows:
        scores = [score_text(runs, m) if runs else "–" for m in metrics.values()]
        published = [number(known.get(metric)) for metric in metrics.values()]
        pairs = zip(scores, published, strict=True)
        cells.append([name, *(text for pair in pairs for text in pair[: 1 + is_published])])
    return Table(heads, cells, caption)
