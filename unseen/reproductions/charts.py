"""Charts that several published studies share: bars in groups, lines with intervals, clouds of
points.

Each gives a figure; `comparison.drawn` puts it in the house's style.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator
from numpy.typing import NDArray

from unseen.core.statistics import over_seeds
from unseen.reports.embedding_map import class_colors
from unseen.studies.results import Run
from unseen.studies.study_figures import ACCENT, LINE, MUTED

COLORS = (ACCENT, "#e0a030", "#54a24b", "#b279a2", "#9d755d", MUTED)


class Point(NamedTuple):
    """A value in percent and half of its interval (NaN: none)."""

    x: Any
    value: float
    half: float = math.nan


class Cloud(NamedTuple):
    """Points of a panel: a place [n, 2] and a class [n] each."""

    title: str
    places: Any
    classes: Any


def point(x: Any, runs: Sequence[Run], metric: str) -> Point:
    """The mean score of finished runs with its interval over seeds; NaN without one."""
    result = [run.score(metric) for run in runs if run.state == "done"]
    known = [value for value in result if not math.isnan(value)]
    if not known:
        return Point(x, math.nan)
    spread = over_seeds(known)
    return Point(x, 100 * spread.mean, 50 * (spread.high - spread.low))


def bars(series: Mapping[str, Mapping[str, Point]], x_title: str, y_title: str) -> Figure:
    """A group of bars for each category, in it a bar of each series; what has no value has no
    bar and takes no place."""
    names = list(dict.fromkeys(name for each in series.values() for name in each))
    figure = Figure(figsize=(max(5.0, 1.6 + 0.32 * len(names) * (len(series) + 1)), 3.4))
    figure.set_layout_engine("constrained")
    ax, width = figure.subplots(), 0.8 / max(1, len(series))
    there = {n: [title for title, v in series.items() if _is_known(v.get(n))] for n in names}
    for place, (title, values) in enumerate(series.items()):
        known = [(i, values[n]) for i, n in enumerate(names) if _is_known(values.get(n))]
        x = [
            i + width * (there[names[i]].index(title) - (len(there[names[i]]) - 1) / 2)
            for i, _ in known
        ]
        halves = [0.0 if math.isnan(p.half) else p.half for _, p in known]
        color = COLORS[place % len(COLORS)]
        ax.bar(
            x, [p.value for _, p in known], 0.92 * width, yerr=halves if any(halves) else None,
            color=color, label=title, capsize=2, ecolor="#1b2026",
        )  # fmt: skip
    turned = max(map(len, names), default=0) * len(names) > 70
    turn: Any = {"rotation": 30, "ha": "right"} if turned else {}
    ax.set_xticks(range(len(names)), names, **turn)
    ax.axhline(0, color=MUTED, lw=0.8)
    ax.set(xlabel=x_title, ylabel=y_title)
    figure.legend(loc="outside upper right", ncols=min(4, len(series)))
    return figure


def lines(
    series: Mapping[str, Sequence[Point]], x_title: str, y_title: str, dashed: Sequence[str] = ()
) -> Figure:
    """A line per series with its intervals; `dashed` names those that are not ours, or not on
    unseen classes."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    ax = figure.subplots()
    solid = [name for name in series if name not in dashed]
    for name, points in series.items():
        known = [point for point in points if _is_known(point)]
        order = solid if name in solid else list(dashed)
        color = COLORS[order.index(name) % len(COLORS)]
        x, y = [p.x for p in known], [p.value for p in known]
        style: Any = "o-" if name in solid else "D--"
        ax.plot(x, y, style, color=color, ms=4, lw=1.5, label=name,
                mfc=color if name in solid else "none")  # fmt: skip
        halves = [0.0 if math.isnan(p.half) else p.half for p in known]
        if any(halves):
            ax.errorbar(x, y, yerr=halves, fmt="none", ecolor=color, capsize=3, lw=1)
    if all(isinstance(p.x, int) for points in series.values() for p in points):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel=x_title, ylabel=y_title)
    ax.grid(axis="y", color=LINE, lw=0.8)
    figure.legend(loc="outside right upper")
    return figure


def clouds(panels: Sequence[Cloud], columns: int = 0) -> Figure:
    """Places in the plane, a colour per class, a panel for each space, in rows of so many (0: one
    row)."""
    columns = min(columns or len(panels), len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(3.3 * columns, 3.4 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax, panel in zip(axes, panels, strict=False):
        places, classes = np.asarray(panel.places), np.asarray(panel.classes)
        kinds, of_point = np.unique(classes, return_inverse=True)
        colors = np.array(class_colors(len(kinds)))
        size = 7 if len(places) > 400 else 14
        ax.scatter(places[:, 0], places[:, 1], s=size, c=colors[of_point], lw=0)
        ax.set_title(panel.title, fontsize=9, loc="left")
        bare(ax)
    return figure


def images(places: NDArray[np.float64], tiles: Sequence[NDArray[np.uint8]]) -> Figure:
    """A map of small images: those that would cover another by more than half are left out."""
    low, high = places.min(axis=0), places.max(axis=0)
    spots = (places - low) / np.maximum(high - low, 1e-12)
    side = 0.022
    figure = Figure(figsize=(8, 8), layout="constrained")
    ax = figure.subplots()
    shown: list[NDArray[np.float64]] = []
    for spot, tile in zip(spots, tiles, strict=True):
        gaps = [np.abs(spot - other) for other in shown]
        if any(np.prod(np.maximum(1 - gap / side, 0)) > 0.5 for gap in gaps):
            continue
        shown.append(spot)
        ax.imshow(tile, extent=(spot[0], spot[0] + side, spot[1], spot[1] + side))
    ax.set(xlim=(-0.01, 1.03), ylim=(-0.01, 1.03))
    bare(ax)
    return figure


def logarithmic(ax: Any, scale: str = "log", **values: float) -> Any:
    """A vertical axis in powers of ten, as plain numbers: no text here is read as a formula."""
    ax.set_yscale(scale, **values)
    ax.yaxis.set_major_formatter("{x:g}")
    if scale == "log":
        ax.yaxis.set_minor_formatter(LogFormatter())  # numbers where powers of ten are too few
    return ax


def bare(ax: Any) -> None:
    """A panel whose axes mean nothing."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def _is_known(point: Point | None) -> bool:
    return point is not None and not math.isnan(point.value)
