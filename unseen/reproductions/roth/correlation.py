"""What goes with recall@1 over objectives: other metrics, and measures of the training embeddings.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, figures 4 and 5
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import Spread, over_seeds
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, mean_of, number, without_kept_starts
from unseen.reproductions.claims import Claim, Finding
from unseen.reproductions.numbered_points import name_list, numbered_points
from unseen.reproductions.published_study import Ask, Message, PublishedStudy
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import objectives_plan, set_up_differences
from unseen.reproductions.roth.revisit_figures import METRIC_CORRELATION, SPACE_CORRELATION
from unseen.reproductions.source_values import ROTH
from unseen.reproductions.training_space import by_method, distances, of_runs
from unseen.studies import correlation as correlations
from unseen.studies.findings import Section
from unseen.studies.results import Results, Run
from unseen.studies.study_figures import MUTED
from unseen.studies.study_file import Plan

R1 = "recall@1"
METRICS = (R1, "recall@2", "recall@4", "nmi", "f1", "revisit_map")
TITLES = {"f1": "F1", "revisit_map": "mAP"}
MEASURES = {
    "intra": "distance inside classes",
    "inter": "distance between classes",
    "ratio": "inside over between",
    "rho": "spectral decay rho",
}
Pairs = dict[tuple[str, str], "JackknifedCorrelation"]


@dataclass(frozen=True)
class JackknifedCorrelation:
    """A correlation over objectives, and its least and largest value when any one is left out."""

    whole: correlations.Correlation
    least: float
    largest: float
    decisive: str  # the objective whose absence changes it most

    @property
    def r(self) -> float:
        return self.whole.r

    def holds(self, value: float) -> bool:
        """Whether a value lies in the 95 % interval."""
        return self.whole.low <= value <= self.whole.high


class Correlation(PublishedStudy):
    source = "Roth et al. 2020, figures 4 and 5 (18 objectives without the switch)"
    shows = "how metrics, and measures of the training embeddings, go with recall@1"
    origin = ROTH
    answers = ("R07", "R08", "R09", "R10", "R11", "R12", "R13", "R14")

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask)]

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        return of_runs(_plain_runs(results["objectives"]), distances, progress)

    def claims(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Claim]:
        result = without_kept_starts(results["objectives"])
        metrics, space = _metric_pairs(result), _space_correlations(result, measured)
        printed = METRIC_CORRELATION.get(ask.published_data, {})
        other = SPACE_CORRELATION.get(ask.published_data, {})
        pairs = {"R07": (R1, "nmi"), "R08": (R1, "revisit_map"), "R09": ("nmi", "f1"),
                 "R10": ("nmi", "revisit_map")}  # fmt: skip
        named = {"R11": "rho", "R12": "ratio", "R13": "intra", "R14": "inter"}
        claims = [
            Claim(name, [_finding(" and ".join(map(_title, p)), metrics[p], printed.get(p))], "r")
            for name, p in pairs.items()
        ]
        signs = {"rho": -1}
        return claims + [
            Claim(name, [_finding(MEASURES[m], space.get(m), other.get(m), signs.get(m, 1))], "r")
            for name, m in named.items()
        ]

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result = without_kept_starts(results["objectives"])
        metrics, space = _metrics(result, ask.published_data), _space(result, measured, ask)
        return [space, metrics]

    def differences(self, ask: Ask) -> list[str]:
        return [
            *set_up_differences(ask),
            "Measured at the epoch that is best on validation classes, on the training classes "
            "less those; theirs on all training classes at the epoch best on test classes.",
        ]


def _finding(
    of: str, result: JackknifedCorrelation | None, published: float | None, expected: int = 1
) -> Finding:
    """A correlation over objectives."""
    known = math.nan if published is None else published
    if result is None or math.isnan(result.r):
        return Finding(of, published=known, expected=expected, why="too few objectives")
    return Finding(of, result.r, result.whole.low, result.whole.high, known, expected)


def _plain_runs(results: Results) -> list[Run]:
    """Those without the switch."""
    names = set(objectives.objectives())
    return [run for run in results.runs if run.planned.labels[results.plan.compared] in names]


def _title(metric: str) -> str:
    return TITLES.get(metric, metric_title(metric))


def _pairs(value: Callable[[str, str], float], methods: Sequence[str]) -> Pairs:
    """Every two metrics over methods; `value(method, metric)` is NaN where it is not known."""
    columns = {metric: [value(method, metric) for method in methods] for metric in METRICS}
    return {
        (one, two): _result(methods, columns[one], columns[two])
        for one, two in itertools.combinations(METRICS, 2)
    }


def _result(names: Sequence[str], x: Sequence[float], y: Sequence[float]) -> JackknifedCorrelation:
    whole = correlations.pearson(x, y)
    without = {
        name: correlations.pearson([*x[:i], *x[i + 1 :]], [*y[:i], *y[i + 1 :]]).r
        for i, name in enumerate(names)
    }
    known = {name: r for name, r in without.items() if not math.isnan(r)}
    if math.isnan(whole.r) or not known:
        return JackknifedCorrelation(whole, math.nan, math.nan, "")
    decisive = max(known, key=lambda name: abs(known[name] - whole.r))
    return JackknifedCorrelation(whole, min(known.values()), max(known.values()), decisive)


def _metric_pairs(results: Results) -> Pairs:
    methods = [m for m in results.methods() if m in objectives.objectives()]
    return _pairs(lambda m, metric: mean_of(results.of("", m), metric), methods)


def _metrics(results: Results, data: str) -> Section:
    methods = [m for m in results.methods() if m in objectives.objectives()]
    ours = _metric_pairs(results)
    theirs, printed = objectives.published(data), METRIC_CORRELATION.get(data, {})
    again = _pairs(lambda m, metric: theirs.get(m, {}).get(metric, math.nan), methods)
    rows = []
    for pair, result in ours.items():
        shown = printed.get(pair)
        cells = [" and ".join(map(_title, pair)), _r_text(result), _without_text(result)]
        cells += [number(shown, 2), number(again[pair].r, 2)]
        rows.append([*cells, _inside(result, again[pair].r if shown is None else shown)])
    heads = ["metrics", "ours, r", "any one left out", "published", "from their tables"]
    heads += ["in our interval"]
    caption = (
        f"Pearson's r over {len(methods)} objectives, each the mean over its seeds, with the 95 % "
        "interval by Fisher's transform. From their tables: computed again from the published "
        "scores."
    )
    figure = drawn(
        "metric_correlation",
        "Pearson's r of metrics over objectives: ours (left) and published (right; from their "
        "tables, R@4 as printed). Darker is closer to 1.",
        lambda: _matrices(ours, again, printed),
    )
    return Section(
        "Metrics go together",
        [],
        [Table(heads, rows, caption)],
        [figure],
    )


def _inside(result: JackknifedCorrelation, value: float) -> str:
    if math.isnan(value) or math.isnan(result.whole.low):
        return "–"
    return "yes" if result.holds(value) else "no"


def _r_text(result: JackknifedCorrelation) -> str:
    if math.isnan(result.r):
        return "–"
    low, high = result.whole.low, result.whole.high
    return f"{result.r:.2f}" + ("" if math.isnan(low) else f" ({low:.2f} … {high:.2f})")


def _without_text(result: JackknifedCorrelation) -> str:
    return "–" if math.isnan(result.least) else f"{result.least:.2f} … {result.largest:.2f}"


def _matrices(ours: Pairs, again: Pairs, printed: Mapping[tuple[str, str], float]) -> Figure:
    theirs = {pair: printed.get(pair, result.r) for pair, result in again.items()}
    panels = [("ours", {pair: result.r for pair, result in ours.items()}), ("published", theirs)]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    count = len(METRICS)
    for ax, (title, values) in zip(axes, panels, strict=True):
        grid = np.eye(count)
        for (one, two), r in values.items():
            i, j = METRICS.index(one), METRICS.index(two)
            grid[i, j] = grid[j, i] = r
        ax.imshow(grid, cmap="Blues", vmin=0, vmax=1.25)
        for (i, j), r in np.ndenumerate(grid):
            shown = "" if math.isnan(r) else f"{r:.2f}"
            color = "white" if r > 0.75 else "#1b2026"
            ax.text(j, i, shown, ha="center", va="center", fontsize=8, color=color)
        ax.set_xticks(range(count), list(map(_title, METRICS)))
        ax.set_yticks(range(count), list(map(_title, METRICS)))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(title, loc="left", fontsize=9)
    return figure


def _columns(results: Results, measured: dict[str, Any]) -> dict[str, dict[str, Spread]]:
    """Measure -> objective -> its mean over seeds."""
    plain = set(objectives.objectives())
    return {
        name: {
            m: over_seeds(v) for m, v in by_method(results, measured, name).items() if m in plain
        }
        for name in MEASURES
    }


def _recalls(results: Results, methods: Iterable[str]) -> dict[str, Spread]:
    return {
        method: over_seeds([r.score(R1) for r in results.of("", method) if r.state == "done"])
        for method in methods
    }


def _space_correlations(
    results: Results, measured: dict[str, Any]
) -> dict[str, JackknifedCorrelation]:
    columns = _columns(results, measured)
    recall = _recalls(results, columns["rho"])
    return {
        name: _result(
            list(values),
            [spread.mean for spread in values.values()],
            [100 * recall[method].mean for method in values],
        )
        for name, values in columns.items()
    }


def _space(results: Results, measured: dict[str, Any], ask: Ask) -> Section:
    columns, result = _columns(results, measured), _space_correlations(results, measured)
    recall = _recalls(results, columns["rho"])
    theirs = SPACE_CORRELATION.get(ask.published_data, dict.fromkeys(MEASURES, math.nan))
    rows = [
        [title, _r_text(result[name]), _without_text(result[name]), number(theirs[name], 2),
         _inside(result[name], theirs[name])]
        for name, title in MEASURES.items()
    ]  # fmt: skip
    if math.isnan(result["rho"].r):
        return Section("Training embeddings and recall", ["Too few objectives to correlate."])
    heads = ["measure of training embeddings", "ours, r with R@1", "any one left out", "published"]
    caption = (
        f"Pearson's r over {result['rho'].whole.count} objectives with its 95 % interval (Fisher), "
        "and its least and largest value when any one objective is left out."
    )
    figure = drawn(
        "space",
        "Recall@1 on test classes against four measures of the training embeddings, one numbered "
        "point for each objective, mean over seeds; the dashed line is least squares.",
        lambda: _scatters(columns, recall, result, theirs),
    )
    table = Table([*heads, "in our interval"], rows, caption)
    return Section("Training embeddings and recall", [], [table], [figure])


def _scatters(
    columns: Mapping[str, Mapping[str, Spread]],
    recall: Mapping[str, Spread],
    result: Mapping[str, JackknifedCorrelation],
    theirs: Mapping[str, float],
) -> Figure:
    figure = Figure(figsize=(10, 6.6), layout="constrained")
    axes = figure.subplots(2, 2).flat
    for ax, (name, title) in zip(axes, MEASURES.items(), strict=True):
        places = {m: (spread.mean, 100 * recall[m].mean) for m, spread in columns[name].items()}
        numbered_points(ax, places)
        ends, line = np.array(ax.get_xlim()), result[name].whole
        ax.plot(ends, line.slope * ends + line.intercept, "--", color=MUTED, lw=1)
        ax.set(xlabel=title, ylabel="R@1, %", xlim=tuple(ends))
        caption = f"r = {_r_text(result[name])}, published {number(theirs[name], 2)}"
        ax.set_title(caption, loc="left", fontsize=9)
    name_list(figure, axes[0])
    return figure
