"""How methods hold up under distribution shift: recall against shift, of a study whose runs are
steps of splits of growing shift (`protocol = "shift"`, a factor `"shift.step" = [1, 3, 5, 7,
9]`).

curve     the plan's metric at each step's distance: the mean over seeds and test classes, with its
          95 % interval over both
gain      what training adds to its own start at each step, on the same queries, with its interval:
          tighter than that of the score, in which easy and hard classes differ
area      under the curve over the distances, straight lines between steps, divided by their range:
          the mean of the metric over the shift. Of each seed by itself, then the mean of these
baselines rows without training stand beside: removed classes leave a smaller gallery, so what the
          steps do to a start that knows nothing is part of the image
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from unseen.core.statistics import Interval, Spread, crossed, over_seeds
from unseen.reports.score_tables import metric_title, row_title
from unseen.reports.tables import Table
from unseen.studies.extra_results import spread_text
from unseen.studies.results import MUST_BEAT, Results, Run, gain
from unseen.studies.study_figures import ACCENT, MUTED, STYLE, Drawn, mark_on_test

SHIFT = "shift"
COLORS = (
    ACCENT, "#bf2f29", "#1a7f4b", "#8a5a00", "#6b3fa0", "#0b7285", "#c2255c", "#5c940d", "#e8590c",
    "#111111",
)  # fmt: skip


@dataclass(frozen=True)
class ShiftPoint:
    """A step: the distance of its training and test classes, the score, and what training adds to
    its start; None for rows without training."""

    step: int
    distance: float
    score: Interval
    gain: Interval | None = None


@dataclass(frozen=True)
class ShiftCurve:
    """A method over the shift. row: "trained", or what needs no training."""

    experiment: str
    method: str
    row: str
    points: list[ShiftPoint]
    area: Spread

    @property
    def change(self) -> float:
        """From the first step to the last."""
        return self.points[-1].score.value - self.points[0].score.value


def shift_curves(results: Results) -> list[ShiftCurve]:
    """Of every method in every experiment, then of the baselines; nothing without two steps."""
    groups: dict[tuple[str, str], list[Run]] = {}
    steps = [name for name, values in results.plan.factors.items() if _is_step(name, values)]
    for run in results.runs:
        if run.state == "done" and run.result and run.result.split.shift is not None:
            method = run.planned.labels[results.plan.compared]
            groups.setdefault((results.experiment(run, steps), method), []).append(run)
    curves = [
        _curve(*names, "trained", runs, results.plan.metric) for names, runs in groups.items()
    ]
    for experiment in dict.fromkeys(name for name, _ in groups):
        runs = [run for (name, _), some in groups.items() if name == experiment for run in some]
        for row in MUST_BEAT:
            curves.append(_curve(experiment, row, row, runs, results.plan.metric))
    return [curve for curve in curves if len(curve.points) > 1]


def area(distances: Sequence[float], scores: Sequence[float]) -> float:
    """Under the curve, divided by the range of the distances; NaN where that is 0."""
    order = np.argsort(distances, kind="stable")
    x, y = np.asarray(distances, dtype=np.float64)[order], np.asarray(scores)[order]
    return float(np.dot(trapezoid(x), y)) if x[-1] > x[0] else math.nan


def trapezoid(distances: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of each step in the area, by rising distances."""
    x = np.asarray(distances, dtype=np.float64)
    gaps = np.diff(x) / (x[-1] - x[0])
    weights: NDArray[np.float64] = (np.append(gaps, 0) + np.append(0, gaps)) / 2
    return weights


def shift_tables(results: Results) -> list[Table]:
    """Methods by their area; none without curves."""
    curves, metric = shift_curves(results), results.plan.metric
    if not curves:
        return []
    first, last = curves[0].points[0], curves[0].points[-1]
    heads = ["method", "area", *(f"at {_rounded(p.distance)}" for p in (first, last)), "change"]
    several = len({curve.experiment for curve in curves}) > 1
    ranked = sorted(curves, key=lambda curve: (curve.row != "trained", -curve.area.mean))
    rows = []
    for curve in ranked:
        ends = [f"{100 * curve.points[place].score.value:.1f}" for place in (0, -1)]
        area_text, change = spread_text(curve.area), f"{100 * curve.change:+.1f}"
        rows.append([_title(curve, several), area_text, *ends, change])
    caption = (
        f"Area: the mean of {metric_title(metric)} over the Frechet distances of training and test "
        f"features, {len(curves[0].points)} steps, in percent; ±: 95 % interval over seeds. Steps "
        "that remove classes have smaller galleries: compare with the rows without training."
    )
    return [Table(heads, rows, caption)]


def shift_figures(results: Results) -> list[Drawn]:
    """Recall against shift, a curve for each method; one panel for each experiment."""
    curves = shift_curves(results)
    if not curves:
        return []
    experiments = list(dict.fromkeys(curve.experiment for curve in curves))
    with matplotlib.rc_context(STYLE):
        size = (9, 5.2 * len(experiments) + 0.4)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(
            2 * len(experiments), 1, sharex=True, height_ratios=[3, 2] * len(experiments)
        )
        for place, experiment in enumerate(experiments):
            own = [curve for curve in curves if curve.experiment == experiment]
            ranked = sorted(own, key=lambda curve: (curve.row != "trained", -curve.area.mean))
            _scores_panel(grid[2 * place], ranked, results.plan.metric)
            _gains_panel(grid[2 * place + 1], ranked)
            grid[2 * place].set_title(experiment, fontsize=9, loc="left")
        grid[-1].set_xlabel("Frechet distance of training and test classes")
        handles, labels = grid[0].get_legend_handles_labels()
        order = sorted(range(len(labels)), key=lambda place: not hasattr(handles[place], "lines"))
        shown = ([some[place] for place in order] for some in (handles, labels))
        figure.legend(*shown, loc="outside right upper", fontsize=8)
    if results.on_test:
        mark_on_test(figure)
    caption = (
        f"{metric_title(results.plan.metric)} as the distribution shifts (in brackets: the "
        "area), and below what training adds to its start: 95 % intervals over seeds and classes."
    )
    return [Drawn("shift", caption, figure)]


def _scores_panel(ax: Any, curves: Sequence[ShiftCurve], metric: str) -> None:
    for place, curve in enumerate(curves):
        score = [point.score for point in curve.points]
        label = f"{_title(curve, False)} ({100 * curve.area.mean:.1f})"
        if curve.row == "trained":
            _line(ax, curve, score, place, label)
            continue
        style = "--" if curve.row == "untrained" else ":"
        x = [point.distance for point in curve.points]
        ax.plot(x, [100 * each.value for each in score], style, color=MUTED, lw=1.2, label=label)
    ax.set_ylabel(f"{metric_title(metric)}, %")


def _gains_panel(ax: Any, curves: Sequence[ShiftCurve]) -> None:
    ax.axhline(0, color=MUTED, lw=1, ls="--")
    for place, curve in enumerate(curves):
        gains = [point.gain for point in curve.points]
        if all(gains):
            _line(ax, curve, [each for each in gains if each is not None], place, "")
    ax.set_ylabel("over its start, points")


def _line(ax: Any, curve: ShiftCurve, values: Sequence[Interval], place: int, label: str) -> None:
    """With intervals; methods stand a little beside each other, so that all are seen."""
    span = curve.points[-1].distance - curve.points[0].distance
    x = [point.distance + (place - 1) * 0.006 * span for point in curve.points]
    y = np.array([100 * each.value for each in values])
    ends = np.array([[100 * each.low, 100 * each.high] for each in values])
    halves = np.nan_to_num(np.abs(ends - y[:, None])).T
    style = {"color": COLORS[place % len(COLORS)], "ms": 4, "lw": 1.4, "elinewidth": 0.8}
    ax.errorbar(x, y, yerr=halves, fmt="o-", label=label or None, **style)


def _curve(experiment: str, method: str, row: str, runs: Sequence[Run], metric: str) -> ShiftCurve:
    steps: dict[int, list[Run]] = {}
    for run in runs:
        assert run.result is not None, "sorted out before"
        steps.setdefault(run.result.split.shift_step or 0, []).append(run)
    points, by_seed = [], dict[tuple[int, int], dict[float, float]]()
    for step, own in sorted(steps.items()):
        once = list({run.replicate: run for run in own}.values())  # baselines: of one method
        scores = {run.replicate: run.score(metric, row) for run in once}
        if any(math.isnan(score) for score in scores.values()):
            continue
        distance = _distance(own[0])
        added = gain(once, "untrained", metric) if row == "trained" else None
        points.append(ShiftPoint(step, distance, _interval(once, row, metric), added))
        for replicate, score in scores.items():
            by_seed.setdefault(replicate, {})[distance] = score
    whole = [result for result in by_seed.values() if len(result) == len(points)]
    areas = [area(list(result), list(result.values())) for result in whole if len(result) > 1]
    return ShiftCurve(experiment, method, row, points, over_seeds(areas or [math.nan]))


def _distance(run: Run) -> float:
    assert run.result is not None, "sorted out before"
    return run.result.split.shift or 0.0


def _interval(runs: Sequence[Run], row: str, metric: str) -> Interval:
    """Over seeds and classes; over seeds alone where the score is not known by class."""
    tables = [run.by_class(metric, row) for run in runs]
    known = [table for table in tables if table is not None]
    alike = len({(each.classes, each.counts) for each in known}) == 1
    if alike and len(known) == len(runs):
        counts = known[0].counts
        return crossed([each.sums / counts for each in known], counts)
    return crossed([[run.score(metric, row)] for run in runs])


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _is_step(name: str, values: Any) -> bool:
    """Whether a factor chooses the step: by its key, or by what its named values set."""
    if not isinstance(values, Mapping):
        return name.split(".", maxsplit=1)[0] == SHIFT
    return any(key.split(".")[0] == SHIFT for settings in values.values() for key in settings)


def _title(curve: ShiftCurve, several: bool) -> str:
    name = curve.method if curve.row == "trained" else row_title(curve.row)
    return f"{curve.experiment}: {name}" if several and curve.experiment else name
