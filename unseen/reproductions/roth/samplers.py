"""Seven ways of making batches, compared over objectives and metrics.

Source   K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
         Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473, section 4.3, figure 3,
         tables 7 to 9
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import over_seeds
from unseen.reports.score_tables import metric_title
from unseen.reports.tables import Table
from unseen.reproductions.against_source import (
    ONE_SEED,
    drawn,
    mean_of,
    missing_text,
    number,
    spread_text,
)
from unseen.reproductions.numbers import table
from unseen.reproductions.published_study import METRICS, Ask, PublishedStudy
from unseen.reproductions.roth import objectives
from unseen.reproductions.roth.losses import set_up_differences
from unseen.reproductions.source_values import ROTH
from unseen.studies.findings import Section
from unseen.studies.relative_performance import relative
from unseen.studies.results import Results, effect
from unseen.studies.study_figures import LINE
from unseen.studies.study_file import Plan, Values
from unseen.studies.validity_checks import interval_text

SAMPLERS: dict[str, Values] = {
    "SPC-2": {"name": "m_per_class", "preset": "revisit", "per_class": 2},
    "SPC-4": {"name": "m_per_class", "preset": "revisit", "per_class": 4},
    "SPC-8": {"name": "m_per_class", "preset": "revisit", "per_class": 8},
    "SPC-R": {"name": "random_with_pair", "preset": "revisit"},
    "DDM": {"name": "distance_matching", "preset": "revisit"},
    "GC": {"name": "greedy_coreset", "preset": "revisit"},
    "FRD": {"name": "frechet_matching", "preset": "revisit"},
}
OBJECTIVES = {  # their name in the tables of samplers -> in those of objectives
    "Margin (D)": "Margin (D, beta = 1.2)",
    "MultiSimilarity": "Multisimilarity",
    "NPair": "Npair",
    "Softmax": "Softmax",
    "Triplet (R)": "Triplet (R)",
    "Histogram": "Histogram",
    "ProxyNCA": "ProxyNCA",
}
QUICK = 4  # of the objectives
R1 = "recall@1"


class Samplers(PublishedStudy):
    source = "Roth et al. 2020, section 4.3, figure 3, tables 7 to 9 (ResNet-50, 128-d, 5 seeds)"
    shows = "seven batch samplers by relative performance over objectives and metrics"
    source_values = ROTH

    def plans(self, ask: Ask) -> list[Plan]:
        known = objectives.objectives(ask.is_quick)
        chosen = list(OBJECTIVES.items())[: QUICK if ask.is_quick else None]
        factors = {
            "sampler": {name: {"sampler": sampler} for name, sampler in SAMPLERS.items()},
            "objective": {name: known[own] for name, own in chosen},
        }
        about = "The batch samplers of Roth et al. 2020."
        seeds = 1 if ask.is_quick else 5
        return [ask.plan("samplers", about, factors, {}, seeds, source=ROTH)]

    def sections(
        self, ask: Ask, results: Mapping[str, Results], measured: dict[str, Any]
    ) -> list[Section]:
        result = results["samplers"]
        theirs = published(ask.published_data, result.experiments())
        return [
            _compared(result, theirs, ask.published_title),
            Section(
                "By metric",
                _best_message(result, theirs),
                [_score_table(result, theirs, metric) for metric in METRICS],
            ),
        ]

    def differences(self, ask: Ask) -> list[str]:
        return [
            *set_up_differences(ask),
            "GC, DDM and FRD are as described; the released code of GC looks its batch up in "
            "another pool, and that of DDM compares heights of bins without their place.",
            "SPC-n takes different classes and different images, as described; the released code "
            "draws both with replacement.",
            f"Objectives: {', '.join(list(OBJECTIVES)[: QUICK if ask.is_quick else None])}; the "
            "published violins stand for the same ones.",
        ]


def published(data: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of objective, sampler and metrics in percent, for some of the objectives."""
    return [
        {"objective": row["approach"], "sampler": row["sampler"]}
        | {metric: row[column] for metric, column in objectives.COLUMNS.items()}
        for row in table("revisit_samplers")
        if row["dataset"] == data and row["approach"] in names
    ]


def _compared(results: Results, theirs: Sequence[dict[str, Any]], data: str) -> Section:
    done = [row for row in results.rows() if row["state"] == "done"]
    fixed = ("objective", "seed")
    ours = relative(done, setup="sampler", fixed=fixed, metrics=METRICS)
    other = relative(theirs, setup="sampler", fixed=("objective",), metrics=METRICS)
    if len(ours) < 2:
        return Section("Relative performance", ["Fewer than two samplers have finished runs."])
    means = {name: 100 * float(np.mean(values)) for name, values in ours.items()}
    best, worst = next(iter(means)), list(means)[-1]
    sentences = [
        f"{best} is best with {means[best]:.1f} % of the best sampler's score on average, {worst} "
        f"worst with {means[worst]:.1f} %: {means[best] - means[worst]:.1f} points between them.",
        _order_message(means, other, data),
    ]
    if len(results.plan.seeds) == 1:
        sentences.append(ONE_SEED)
    rows = [[name, *[_ratio(each.get(name)) for each in (ours, other)]] for name in SAMPLERS]
    figure = drawn(
        "relative_performance",
        "Score over that of the best sampler with the same objective and metric, one violin for "
        "each sampler, ours and published; 1 is best, the bar holds the middle half, the white "
        "dot is the median.",
        lambda: _violins(ours, other),
    )
    caption = "Mean over objectives, metrics and seeds, with the middle half in brackets, in %."
    return Section(
        "Relative performance", sentences, [Table(["sampler", "ours", "published"], rows, caption)],
        [figure],
    )  # fmt: skip


def _order_message(
    means: Mapping[str, float], theirs: Mapping[str, Sequence[float]], data: str
) -> str:
    if len(theirs) < 2:
        return f"No published values on {data} for these objectives."
    published_means = [100 * float(np.mean(values)) for values in theirs.values()]
    ours = [name for name in means if name in theirs]  # best first, as theirs
    places = [
        f"{name} at place {ours.index(name) + 1}" if name in ours else f"{name} unfinished"
        for name in list(theirs)[:2]
    ]
    return (
        f"Published on {data}: {' and '.join(list(theirs)[:2])} are best, and "
        f"{published_means[0] - published_means[-1]:.1f} points lie between best and worst. Ours "
        f"have {' and '.join(places)} of {len(ours)}."
    )


def _ratio(values: Sequence[float] | None) -> str:
    if not values:
        return "–"
    low, high = np.percentile(values, [25, 75])
    return f"{100 * float(np.mean(values)):.1f} ({100 * low:.1f} … {100 * high:.1f})"


def _best_message(results: Results, theirs: Sequence[dict[str, Any]]) -> list[str]:
    sentences = []
    for objective in results.experiments():
        scores = {name: mean_of(results.of(objective, name), R1) for name in SAMPLERS}
        scores = {name: score for name, score in scores.items() if not np.isnan(score)}
        if not scores:
            sentences.append(f"{objective}: no run has finished.")
            continue
        best, worst = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
        other = {
            row["sampler"]: row[R1] for row in theirs
            if row["objective"] == objective and row[R1] is not None
        }  # fmt: skip
        beside = f" Published: {max(other, key=other.__getitem__)} is best." if other else ""
        result = effect(results.of(objective, worst), results.of(objective, best), R1)
        sentences.append(
            f"{objective}: {best} is highest with {100 * scores[best]:.1f} %, {worst} lowest with "
            f"{100 * scores[worst]:.1f} % (difference {interval_text(result)} points over "
            f"seeds and test classes).{beside}"
        )
    return sentences


def _score_table(results: Results, theirs: Sequence[dict[str, Any]], metric: str) -> Table:
    other = {(row["objective"], row["sampler"]): row[metric] for row in theirs}
    heads, rows = ["sampler"], []
    for objective in results.experiments():
        heads += [objective, "published"]
    for name in SAMPLERS:
        cells = [name]
        for objective in results.experiments():
            runs = results.of(objective, name)
            scores = [run.score(metric) for run in runs if run.state == "done"]
            ours = spread_text(over_seeds(scores)) if scores else missing_text(runs)
            cells += [ours, number(other.get((objective, name)), 2)]
        rows.append(cells)
    title = metric_title(metric)
    caption = f"{title} in %, ± half of its 95 % interval over seeds where there are several."
    return Table(heads, rows, caption)


def _violins(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]) -> Figure:
    """Two panels with the samplers in the same order, ours and published."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    names = list(SAMPLERS)[::-1]
    panels = [("ours", ours, "#8fb0d6"), ("published", theirs, "#c9ced5")]
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, (title, ratios, color) in zip(axes, panels, strict=True):
        for place, name in enumerate(names):
            values = np.asarray(ratios.get(name, ()))
            if not len(values):
                continue
            if len(set(values)) > 1:
                parts: Any = ax.violinplot(
                    values, positions=[place], orientation="horizontal", showextrema=False,
                    widths=0.8,
                )  # fmt: skip
                parts["bodies"][0].set(facecolor=color, edgecolor="#58626e", alpha=0.9)
            low, middle, high = np.percentile(values, [25, 50, 75])
            ax.plot([low, high], [place, place], color="#1b2026", lw=4, solid_capstyle="butt")
            ax.plot(middle, place, "o", color="white", mec="#1b2026", ms=5)
        ax.set_title(title, loc="left", fontsize=9)
        ax.set_xlabel("score over that of the best sampler")
        ax.grid(axis="x", color=LINE, lw=0.8)
    axes[0].set_yticks(range(len(names)), names)
    return figure
