"""Figures of a run as plotly descriptions: learning curves, lines, bars.

A description is plain data. Colours are written `var(--accent)` and looked up in the style sheet by
the page's script, so that a figure follows the reader's light or dark setting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unseen.reports import score_tables
from unseen.reports.stored_run import StoredRun
from unseen.training.events import Epoch, Start
from unseen.training.nested import row_at

Json = dict[str, Any]

MOST_LOSS_POINTS = 200
SPLITS = {  # of the data, in the event log: name on the page, colour, line
    "train": ("training classes", "var(--muted)", "dot"),
    "validation": ("validation classes, not trained on", "var(--accent)", "solid"),
    "test": ("test classes, watched in training", "var(--wrong)", "dash"),
}
SIZES = {  # rows of the score table: title, colour, line
    "trained": ("nested embedding, its first numbers", "var(--accent)", "solid"),
    "principal": ("PCA baseline", "var(--muted)", "dash"),
}
STYLES = {"solid": "solid", "dot": "dotted", "dash": "dashed"}  # of lines, in plotly and in CSS
RECALL = {"title": {"text": "recall@1, %"}}


@dataclass(frozen=True)
class Line:
    """Of a figure, in words beside it: there they wrap on a narrow screen. style: in CSS."""

    title: str
    color: str
    style: str = "solid"


@dataclass(frozen=True)
class Plot:
    """The frame of a figure. label: for who cannot see it."""

    id: str
    caption: str
    label: str
    lines: list[Line]


def line(
    name: str,
    x: Sequence[Any],
    y: Sequence[Any],
    color: str,
    dash: str = "solid",
    hover: str = "%{y:.1f} %",
    **more: Any,
) -> Json:
    """A line with a dot at each of its points."""
    style = {"color": color, "width": 2, "dash": dash}
    trace = {"type": "scatter", "mode": "lines+markers", "name": name, "line": style}
    hovered = f"{hover}<extra>{name}</extra>"
    return trace | {"x": list(x), "y": list(y), "hovertemplate": hovered} | more


def lines_of(figure: Json) -> list[Line]:
    """What stands beside a figure of lines."""
    styles = [(trace["name"], trace["line"]) for trace in figure["data"]]
    return [Line(name, style["color"], STYLES[style["dash"]]) for name, style in styles]


def bars_figure(x: Sequence[str], series: Mapping[str, tuple[str, Sequence[float]]]) -> Json:
    """A group of bars at each x. series: title -> colour and shares."""
    traces = [
        {
            "type": "bar",
            "name": title,
            "x": list(x),
            "y": [round(100 * value, 2) for value in values],
            "marker": {"color": color},
            "hovertemplate": "%{y:.1f} %<extra>" + title + "</extra>",
        }
        for title, (color, values) in series.items()
    ]
    layout = {"barmode": "group", "xaxis": {"type": "category"}, "yaxis": RECALL}
    return {"data": traces, "layout": layout}


def upright(x: float, text: str, **more: Any) -> Json:
    """A layout with a dashed line across the figure and its name above it."""
    style = {"color": "var(--text)", "width": 1, "dash": "dash"}
    shape = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": style}
    note = {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "text": text}
    return {"shapes": [shape], "annotations": [note | {"font": {"size": 12}} | more]}


def loss_figure(run: StoredRun) -> Json | None:
    """Loss per step, averaged in groups when there are many, over epochs."""
    if not run.steps:
        return None
    step = np.array([event.step for event in run.steps], dtype=float)
    loss = np.array([event.terms["total"] for event in run.steps], dtype=float)
    groups = np.array_split(np.arange(len(step)), min(len(step), MOST_LOSS_POINTS))
    x = _epochs_of(run, np.array([step[group].mean() for group in groups]))
    y = [float(loss[group].mean()) for group in groups]
    trace = line("loss", np.round(x, 4).tolist(), _readable(y), "var(--accent)", mode="lines")
    trace["hovertemplate"] = "%{y:.4g}<extra></extra>"
    return _over_epochs(run, [trace], "loss", "epochs" if run.epochs else "steps")


def recall_figure(run: StoredRun, metric: str = "recall@1") -> Json | None:
    """Recall before training and after each epoch, on training and on validation classes."""
    traces = []
    validations: list[Start | Epoch] = [*([run.start] if run.start else []), *run.epochs]
    for split, (title, color, dash) in SPLITS.items():
        scores = {event.epoch + 1: getattr(event, split) or {} for event in validations}
        values = {epoch: result[metric] for epoch, result in scores.items() if metric in result}
        y = _readable([100 * value for value in values.values()])
        drawn: Json = {"marker": {"size": 5}, "cliponaxis": False}
        traces += [line(title, list(values), y, color, dash, **drawn)] if values else []
    if not traces:
        return None
    figure = _over_epochs(run, traces, f"{metric}, %")
    figure["layout"]["yaxis"]["autorangeoptions"] = {"clipmax": 100}
    return figure


def sizes_figure(run: StoredRun) -> Json | None:
    """Recall of a nested embedding at each of its sizes and of as many principal components."""
    if not run.result or not (sizes := score_tables.sizes(run.result)):
        return None
    whole, traces = int(run.config["embedding_size"]), []
    for row, (title, color, dash) in SIZES.items():
        rows = {size: row_at(row, size) for size in sizes} | {whole: row}
        scores = {size: run.result.score(name, "recall@1") for size, name in rows.items()}
        values = {str(size): round(100 * cell.value, 2) for size, cell in scores.items() if cell}
        if len(values) > 1:
            traces.append(line(title, list(values), list(values.values()), color, dash))
    x = {"type": "category", "title": {"text": "numbers of a descriptor"}}
    return {"data": traces, "layout": {"xaxis": x, "yaxis": RECALL}}


def _epochs_of(run: StoredRun, steps: np.ndarray) -> np.ndarray:
    """Steps as fractions of epochs; steps after the last finished epoch go on at its pace."""
    ends = np.array([0.0] + [float(event.step) for event in run.epochs])
    count = np.array([0.0] + [event.epoch + 1.0 for event in run.epochs])
    if len(ends) < 2:
        return steps
    pace = (count[-1] - count[-2]) / max(ends[-1] - ends[-2], 1.0)
    after_last = np.maximum(steps - ends[-1], 0.0) * pace
    fractions: np.ndarray = np.interp(steps, ends, count) + after_last
    return fractions


def _readable(values: list[float]) -> list[float | None]:
    """Six digits; gaps where a value is not finite, which JSON cannot say."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


def _over_epochs(run: StoredRun, traces: list[Json], title: str, unit: str = "epochs") -> Json:
    """With a line at the epoch whose weights were selected, counted from 1 as the axis does."""
    layout: Json = {
        "xaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": title}},
    }
    if run.result and run.result.selection:
        layout |= upright(run.result.selection.epoch + 1, "kept")
    return {"data": traces, "layout": layout}
