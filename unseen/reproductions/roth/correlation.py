"""What goes with recall@1 over objectives: other metrics, and measures of the training embeddings.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, figures 4 and 5
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import Spread, over_seeds
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import drawn, mean_of, number
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
    source_values = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        return [objectives_plan(ask)]

    def measure(
        self, ask: Ask, results: Mapping[str, Results], progress: Message
    ) -> dict[str, Any]:
        return of_runs(_plain_runs(results["objectives"]), distances, progress)

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result = results["objectives"]
        metrics, space = _metrics(result, ask.published_data), _space(result, measured, ask)
        return [space, metrics]

    def differences(self, ask: Ask) -> list[str]:
        return [
            *set_up_differences(ask),
            "Measured at the epoch that is best on validation classes, on the training classes "
            "less those; theirs on all training classes at the epoch best on test classes.",
        ]


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


def _metrics(results: Results, data: str) -> Section:
    methods = [m for m in results.methods() if m in objectives.objectives()]
    theirs, printed = objectives.published(data), METRIC_CORRELATION.get(data, {})
    ours = _pairs(lambda m, metric: mean_of(results.of("", m), metric), methods)
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
        _metrics_message(ours, printed),
        [Table(heads, rows, caption)],
        [figure],
    )


def _metrics_message(ours: Pairs, printed: Mapping[tuple[str, str], float]) -> list[str]:
    known = {pair: ours[pair] for pair in printed if not math.isnan(ours[pair].r)}
    if not known:
        few = all(math.isnan(result.r) for result in ours.values())
        caption = (
            "Too few objectives have finished, or all score alike: metrics cannot be correlated."
        )
        return [caption if few else "No correlation of metrics is published for these data."]
    inside = [pair for pair, result in known.items() if result.holds(printed[pair])]
    far = max(known, key=lambda pair: abs(known[pair].r - printed[pair]))
    lowest = min((p for p in known if R1 in p), key=lambda pair: known[pair].r)
    return [
        f"With recall@1, {_title(lowest[1])} goes least: r = {_r_text(known[lowest])}, published "
        f"{printed[lowest]:.2f}.",
        f"Of {len(known)} published correlations of metrics {len(inside)} lie in our 95 % "
        f"interval; the farthest is {' and '.join(map(_title, far))}, ours {known[far].r:.2f} "
        f"({_without_text(known[far])} with any one objective left out), published "
        f"{printed[far]:.2f}.",
    ]


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


def _space(results: Results, measured: dict[str, Any], ask: Ask) -> Section:
    columns = {
        name: {m: over_seeds(v) for m, v in by_method(results, measured, name).items()}
        for name in MEASURES
    }
    recall = {
        method: over_seeds([r.score(R1) for r in results.of("", method) if r.state == "done"])
        for method in columns["rho"]
    }
    result = {
        name: _result(
            list(values),
            [spread.mean for spread in values.values()],
            [100 * recall[method].mean for method in values],
        )
        for name, values in columns.items()
    }
    theirs = SPACE_CORRELATION.get(ask.published_data, dict.fromkeys(MEASURES, math.nan))
    rows = [
        [title, _r_text(result[name]), _without_text(result[name]), number(theirs[name], 2),
         _inside(result[name], theirs[name])]
        for name, title in MEASURES.items()
    ]  # fmt: skip
    message = _space_message(result, theirs)
    if math.isnan(result["rho"].r):
        return Section("Training embeddings and recall", message)
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
    return Section("Training embeddings and recall", message, [table], [figure])


def _space_message(
    result: Mapping[str, JackknifedCorrelation], theirs: Mapping[str, float]
) -> list[str]:
    rho = result["rho"]
    if math.isnan(rho.r):
        return ["Too few objectives have finished, or all score alike: nothing to correlate."]
    strongest = max(result, key=lambda name: abs(result[name].r))
    signs = [MEASURES[name] for name in MEASURES if result[name].r * theirs[name] < 0]
    agree = "All four signs are the published ones." if not math.isnan(theirs["rho"]) else ""
    sure = "holds 0" if rho.holds(0.0) else "leaves 0 out"
    return [
        f"Spectral decay of the training embeddings and recall@1 have r = {rho.r:.2f} over "
        f"{rho.whole.count} objectives (published {number(theirs['rho'], 2)}).",
        f"Its 95 % interval is {rho.whole.low:.2f} to {rho.whole.high:.2f}: it {sure}.",
        f"{rho.decisive} counts most: with any one objective left out r lies between "
        f"{rho.least:.2f} and {rho.largest:.2f}.",
        f"Of the four measures {MEASURES[strongest]} goes most with recall@1 "
        f"(r = {_r_text(result[strongest])}); published: spectral decay rho.",
        *([f"The sign differs from the published one for: {', '.join(signs)}."] if signs else []),
        *([agree] if agree and not signs else []),
    ]


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
