"""Figures of a study, drawn with matplotlib: the same image as PNG, as PDF and on the page.

scores                 methods by score with their intervals, baselines as lines
curves                 score against a factor of numbers, such as the share of wrong labels
ranks                  rank of every method in every experiment
critical_difference    mean ranks; a bar joins methods without a significant difference (Demsar
                       2006)
boxes                  what a set-up reaches of the best one, over methods and metrics
correlation_figure     Pearson's r of measures
scatter                two measures, one point per method, with line, r and interval
search                 value by parameter, one line per configuration

Whatever was selected on test classes says so below the figure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from unseen.core.statistics import Spread, over_seeds
from unseen.reports.score_tables import ON_TEST, metric_title, row_title
from unseen.studies.correlation import matrix, pearson
from unseen.studies.results import Results, Standing, standings
from unseen.studies.tournament import Tournament, tournament

ACCENT, MUTED, WRONG, LINE = "#1d5fa9", "#58626e", "#bf2f29", "#dce1e7"
MOST_NAMES = 16  # in a legend
MOST_CURVES = 3  # panels in a row
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.grid": False,
    "svg.hashsalt": "unseen",
    "text.parse_math": False,  # two $ in a name are no formula
}


@dataclass(frozen=True)
class Drawn:
    """A figure with its file name and a sentence for the page."""

    name: str
    caption: str
    figure: Figure


def draw_all(results: Results) -> list[Drawn]:
    """Every figure the results have enough points for."""
    makers = (scores, curves, tournament_figures, search)
    with matplotlib.rc_context(STYLE):
        drawn = [figure for maker in makers for figure in maker(results)]
    for each in drawn if results.on_test else ():
        mark_on_test(each.figure)
    return drawn


def mark_on_test(figure: Figure) -> None:
    """Says on the figure itself that runs were selected on test classes."""
    figure.supxlabel(ON_TEST, x=0.01, ha="left", color=WRONG, fontsize=7)


def panels(
    number: int, most: int, height: float, extra: float, **shared: Any
) -> tuple[Figure, list[Any]]:
    """A figure of so many panels in rows of `most`, each of a height, with room for a legend."""
    columns = min(most, number)
    rows = math.ceil(number / columns)
    figure = Figure(figsize=(9, height * rows + extra), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for ax in grid[number:]:
        ax.set_visible(False)
    return figure, grid[:number]


def name_rows(ax: Any, names: Sequence[str]) -> None:
    """A line for each name, from below."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(axis="y", color=LINE, lw=0.8)


def heat_map(
    table: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    width: float,
    height: float,
    **style: Any,
) -> tuple[Figure, Any]:
    """Named cells, coloured by their values; the caller writes into them."""
    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.subplots()
    ax.imshow(table, aspect="auto", **style)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks(range(len(columns)), columns)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return figure, ax


def half_width(spread: Spread) -> float:
    """Of an interval, in percent; 0 where there is none."""
    return 0.0 if math.isnan(spread.high) else 50 * (spread.high - spread.low)


def scores(results: Results) -> list[Drawn]:
    """Methods by score, best first; points, since their axis need not begin at zero."""
    rows = [row for row in standings(results) if row.scores or row.failed]
    metric, experiments = results.plan.metric, results.experiments()
    methods = max(sum(not r.is_baseline for r in rows if r.experiment == e) for e in experiments)
    figure, grid = panels(len(experiments), 2, 0.26 * methods + 1.3, 0, sharex=True)
    for ax, experiment in zip(grid, experiments, strict=True):
        _panel(ax, [row for row in rows if row.experiment == experiment], metric)
        ax.set_title(experiment, fontsize=9, loc="left")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    caption = f"{metric_title(metric)} on test classes: mean over runs with its 95 % interval."
    return [Drawn("scores", caption, figure)]


def _panel(ax: Any, rows: list[Standing], metric: str) -> None:
    ranked = [row for row in rows if not row.is_baseline][::-1]
    for place, row in enumerate(ranked):
        spread = row.scores.get(metric)
        if spread is None:
            ax.text(0.02, place, "failed", color=WRONG, transform=ax.get_yaxis_transform())
            continue
        color, half = ACCENT if row.is_best else MUTED, half_width(spread)
        ax.errorbar(100 * spread.mean, place, xerr=half, fmt="o", color=color, ms=5, capsize=3)
    name_rows(ax, [row.method for row in ranked])
    baselines = [row for row in rows if row.is_baseline and metric in row.scores]
    for row, style in zip(baselines, ("--", ":", "-."), strict=False):
        value = 100 * row.scores[metric].mean
        ax.axvline(value, color=WRONG, ls=style, lw=1, label=row_title(row.method))
    ax.set_xlabel(f"{metric_title(metric)}, %")


def curves(results: Results) -> list[Drawn]:
    """Scores against every factor of three numbers or more: a line for each method, a panel for
    each combination of the rest."""
    plan, drawn = results.plan, []
    for factor, values in plan.factors.items():
        if factor == plan.compared or not _are_numbers(values):
            continue
        lines: dict[str, dict[str, dict[float, list[float]]]] = {}
        for run in results.runs:
            labels, score = run.planned.labels, run.score(plan.metric)
            rest = [v for name, v in labels.items() if name not in (factor, plan.compared)]
            if not math.isnan(score):
                line = lines.setdefault(", ".join(rest), {}).setdefault(labels[plan.compared], {})
                line.setdefault(float(labels[factor]), []).append(score)
        caption = (
            f"{metric_title(plan.metric)} on test classes against {factor}: mean over runs with "
            "its 95 % interval."
        )
        figure = _curves_figure(lines, factor, metric_title(plan.metric))
        drawn.append(Drawn(f"curves_{factor}".replace(".", "_"), caption, figure))
    return drawn


def _are_numbers(values: Any) -> bool:
    is_list = isinstance(values, list) and len(values) > 2
    return is_list and all(type(value) in (int, float) for value in values)


def _curves_figure(
    drawn: Mapping[str, Mapping[str, Mapping[float, list[float]]]], factor: str, metric: str
) -> Figure:
    figure, grid = panels(len(drawn), MOST_CURVES, 2.1, 0.5, sharex=True, sharey=True)
    for ax, (title, methods) in zip(grid, drawn.items(), strict=True):
        for method, points in methods.items():
            spreads = {x: over_seeds(values) for x, values in sorted(points.items())}
            half = [half_width(spread) for spread in spreads.values()]
            means = [100 * spread.mean for spread in spreads.values()]
            ax.errorbar([*spreads], means, yerr=half, fmt="o-", ms=4, capsize=3, label=method)
        ax.set_title(title, fontsize=9, loc="left")
        ax.grid(color=LINE, lw=0.8)
    for ax in grid[-MOST_CURVES:]:  # the lowest of each column
        ax.tick_params(labelbottom=True)
        ax.set_xlabel(factor)
    figure.supylabel(f"{metric}, %", fontsize=9)
    handles = grid[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper right", ncols=len(handles[1]))
    return figure


def played(results: Results) -> Tournament | None:
    """The tournament of a study: experiments are the other factors, or the runs where there are
    none; None with fewer than three methods."""
    metric, result = results.plan.metric, {}
    has_folds = any(run.replicate[1] for run in results.runs)
    for experiment in results.experiments():
        groups = {m: results.of(experiment, m) for m in results.methods()}
        if len(results.experiments()) > 1:
            result[experiment] = {m: _mean([r.score(metric) for r in g]) for m, g in groups.items()}
            continue
        for seed, fold in dict.fromkeys(run.replicate for run in results.runs):
            name = f"seed {seed}" + (f", fold {fold}" if has_folds else "")
            of_run = {m: [r for r in g if r.replicate == (seed, fold)] for m, g in groups.items()}
            result[name] = {m: _mean([r.score(metric) for r in g]) for m, g in of_run.items()}
    return tournament(result) if len(results.methods()) > 2 else None


def tournament_figures(results: Results) -> list[Drawn]:
    """Ranks and the critical-difference diagram."""
    result = played(results)
    if result is None:
        return []
    return [
        Drawn("ranks", "Rank of every method in every experiment; 1 is best.", ranks(result)),
        Drawn("critical_difference", cd_caption(result), critical_difference(result)),
    ]


def cd_caption(result: Tournament) -> str:
    friedman = "" if math.isnan(result.friedman_p) else f" Friedman p = {result.friedman_p:.2g}."
    return (
        f"Mean ranks over {len(result.experiments)} experiments; a bar joins methods whose mean "
        f"ranks differ by less than {result.critical_difference:.2f} (Nemenyi, 5 %).{friedman}"
    )


def ranks(result: Tournament) -> Figure:
    """A heat map."""
    table = np.array([place.ranks for place in result.places])  # [methods, experiments]
    names = [f"{place.method}  {place.mean:.2f}" for place in result.places]
    size = 2.6 + max(3.0, 0.55 * table.shape[1]), 0.3 * len(table) + 1.2
    colors: Any = {"cmap": "Blues_r", "vmin": 1 - len(table) / 3}
    figure, ax = heat_map(table, names, result.experiments, *size, **colors)
    ax.set_xticks(range(table.shape[1]), result.experiments, rotation=30, ha="right")
    ax.set(xlabel="experiment", ylabel="method")
    for (row, column), rank in np.ndenumerate(table):
        color = "white" if rank < len(table) / 3 else "#1b2026"
        ax.text(column, row, f"{rank:g}", ha="center", va="center", color=color, fontsize=8)
    return figure


def critical_difference(result: Tournament) -> Figure:
    """Mean ranks on a line, names at both sides, bars below."""
    places, count = result.places, len(result.places)
    half = math.ceil(count / 2)
    groups = result.groups()
    figure = Figure(figsize=(8, 0.28 * half + 0.16 * len(groups) + 0.9), layout="constrained")
    ax = figure.subplots()
    ax.set_xlim(1 - 0.32 * count, count + 0.32 * count)
    bottom = 0.5 * len(groups) + 0.7 * half + 0.8
    ax.set_ylim(-bottom, 1.4)
    ax.axis("off")
    ax.plot([1, count], [0, 0], color="#1b2026", lw=1)
    for tick in range(1, count + 1):
        ax.plot([tick, tick], [0, 0.2], color="#1b2026", lw=1)
        ax.text(tick, 0.3, str(tick), ha="center", fontsize=8)
    length = min(result.critical_difference, count - 1)
    ax.plot([1, 1 + length], [1.15, 1.15], color=WRONG, lw=2)
    ax.text(1 + length + 0.05, 1.15, "critical difference", color=WRONG, va="center", fontsize=8)
    for place, (first, last) in enumerate(groups):
        y = -0.3 - 0.4 * place
        ends = [places[first].mean - 0.04, places[last].mean + 0.04]
        ax.plot(ends, [y, y], color=ACCENT, lw=3, solid_capstyle="round")
    top = -0.5 - 0.4 * len(groups)
    for place, each in enumerate(places):
        left = place < half
        y = top - 0.7 * (place if left else count - 1 - place)
        edge = 1 - 0.05 * count if left else count + 0.05 * count
        ax.plot([each.mean, each.mean, edge], [0, y, y], color=MUTED, lw=0.8)
        shift = -0.05 if left else 0.05
        side = "right" if left else "left"
        ax.text(edge + shift, y, f"{each.method} {each.mean:.2f}", va="center", ha=side)
    return figure


def boxes(ratios: Mapping[str, Sequence[float]]) -> Figure:
    """Violins of ratios by set-up, best mean first."""
    figure = Figure(figsize=(8, 0.36 * len(ratios) + 0.9), layout="constrained")
    ax = figure.subplots()
    names, values = list(ratios)[::-1], list(ratios.values())[::-1]
    spread = [len(set(v)) > 1 for v in values]
    wide = [i for i, varies in enumerate(spread) if varies]
    if wide:
        samples = [np.asarray(values[i]) for i in wide]
        violins: Any = ax.violinplot(
            samples, positions=wide, orientation="horizontal", showextrema=False
        )
        for body in violins["bodies"]:
            body.set(facecolor="#8fb0d6", alpha=0.9)
    for place, result in enumerate(values):
        low, middle, high = np.percentile(result, [25, 50, 75])
        ax.plot([low, high], [place, place], color=ACCENT, lw=5, solid_capstyle="butt")
        ax.plot(middle, place, "o", color="white", ms=4)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="relative performance", ylabel="method")
    return figure


def correlation_figure(measures: Mapping[str, Sequence[float]]) -> Figure:
    """A matrix of r with its intervals."""
    table, names = matrix(measures), list(measures)
    size = 0.95 * len(names) + 1.2, 0.7 * len(names) + 0.8
    colors: Any = {"cmap": "RdBu_r", "vmin": -1.4, "vmax": 1.4}
    cells = [[cell.r for cell in row] for row in table]
    figure, ax = heat_map(cells, names, names, *size, **colors)
    ax.set(xlabel="measure", ylabel="measure")
    for i, row in enumerate(table):
        for j, cell in enumerate(row):
            ends = "" if i == j or math.isnan(cell.low) else f"\n{cell.low:.2f} … {cell.high:.2f}"
            ax.text(j, i, f"{cell.r:.2f}{ends}", ha="center", va="center", fontsize=7)
    return figure


def scatter(x: Mapping[str, float], y: Mapping[str, float], x_title: str, y_title: str) -> Figure:
    """Two measures of the same methods, with line, r and interval."""
    names = [name for name in x if name in y]
    result = pearson([x[name] for name in names], [y[name] for name in names])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 4), layout="constrained")
        ax = figure.subplots()
        for name in names:
            ax.plot(x[name], y[name], "o", color=ACCENT, ms=5)
            ax.annotate(name, (x[name], y[name]), (4, 3), textcoords="offset points", fontsize=7)
        if not math.isnan(result.r):
            ends = np.array([min(x[n] for n in names), max(x[n] for n in names)])
            ax.plot(ends, result.slope * ends + result.intercept, color=MUTED, lw=1)
        ax.set(xlabel=x_title, ylabel=y_title)
        ends_text = "" if math.isnan(result.low) else f" ({result.low:.2f} … {result.high:.2f})"
        ax.set_title(f"r = {result.r:.2f}{ends_text}, n = {result.count}", fontsize=9, loc="left")
    return figure


def search(results: Results) -> list[Drawn]:
    """Value by parameter: a line per configuration for coordinates, points for proposals."""
    runs = [run for run in results.searches if run.state == "done" and run.parameters]
    keys = list(dict.fromkeys(key for run in runs for key in run.parameters or {}))
    if not keys:
        return []
    figure, grid = panels(len(keys), 2, 2.7, 0.4)
    is_line = results.plan.search is not None and results.plan.search.mode == "coordinate"
    for ax, key in zip(grid, keys, strict=True):
        configurations: dict[str, list[tuple[Any, float]]] = {}
        for run in runs:
            if run.parameters and run.selection and key in run.parameters:
                point = (run.parameters[key], 100 * run.selection.value)
                configurations.setdefault(", ".join(run.planned.labels.values()), []).append(point)
        for name, points in configurations.items():
            values = [v if isinstance(v, int | float) else str(v) for v, _ in points]
            ax.plot(values, [p for _, p in points], "o-" if is_line else "o", ms=4, label=name)
        ax.set(title=key, xlabel="value", ylabel="recall@1 that selects, %")
    handles, names = grid[0].get_legend_handles_labels()
    caption = (
        "Tuning: recall on the classes to select on, by value; the test classes were not read."
    )
    if len(names) <= MOST_NAMES:
        figure.legend(handles, names, loc="outside upper center", ncols=4)
    else:
        caption += (
            f" A line for each of {len(names)} configurations; the table of tuning names them."
        )
    return [Drawn("search", caption, figure)]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
