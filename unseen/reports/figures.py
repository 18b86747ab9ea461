"""Figures of a run: learning curves as plotly descriptions, the retrieval grid as a PNG.

A description is plain data. Colours are written `var(--accent)` and looked up in the style sheet by
the page's script, so that a figure follows the reader's light or dark setting.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from unseen.core.contracts import Dataset
from unseen.core.files import replace_bytes
from unseen.reports import queries, stored_run
from unseen.reports.stored_run import StoredRun
from unseen.training.events import Epoch, Start

Json = dict[str, Any]

MOST_LOSS_POINTS = 200
SPLITS = {  # of the data, in the event log: name on the page, colour, line in plotly and in CSS
    "train": ("training classes", "var(--muted)", "dot", "dotted"),
    "validation": ("validation classes, not trained on", "var(--accent)", "solid", "solid"),
    "test": ("test classes, watched in training", "var(--wrong)", "dash", "dashed"),
}


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


def chosen_epoch(run: StoredRun) -> int | None:
    """The epoch whose weights were kept, counted from 1, as the axes do."""
    selection = run.result.selection if run.result else None
    return None if selection is None else selection.epoch + 1


def loss_figure(run: StoredRun) -> Json | None:
    """Loss per step, averaged in groups when there are many, over epochs."""
    if not run.steps:
        return None
    step = np.array([event.step for event in run.steps], dtype=float)
    loss = np.array([event.terms["total"] for event in run.steps], dtype=float)
    groups = np.array_split(np.arange(len(step)), min(len(step), MOST_LOSS_POINTS))
    x = _epochs_of(run, np.array([step[group].mean() for group in groups]))
    y = [float(loss[group].mean()) for group in groups]
    line = {"color": "var(--accent)", "width": 1.6}
    trace = _trace("loss", np.round(x, 4).tolist(), _readable(y), line)
    figure = _figure([trace], "loss", chosen_epoch(run), "%{y:.4g}<extra></extra>")
    if not run.epochs:
        figure["layout"]["xaxis"]["title"]["text"] = "steps"
    return figure


def recall_figure(run: StoredRun, metric: str = "recall@1") -> Json | None:
    """Recall before training and after each epoch, on training and on validation classes."""
    traces = []
    validations: list[Start | Epoch] = [*([run.start] if run.start else []), *run.epochs]
    for split, (title, color, dash, _) in SPLITS.items():
        scores = {event.epoch + 1: getattr(event, split) or {} for event in validations}
        values = {epoch: result[metric] for epoch, result in scores.items() if metric in result}
        if not values:
            continue
        x, y = list(values), _readable([100 * value for value in values.values()])
        trace = _trace(title, x, y, {"color": color, "width": 2, "dash": dash})
        drawn = {"mode": "lines+markers", "marker": {"size": 5}, "cliponaxis": False}
        traces.append(trace | drawn)
    if not traces:
        return None
    hover = "%{y:.1f} %<extra>%{fullData.name}</extra>"
    figure = _figure(traces, f"{metric}, %", chosen_epoch(run), hover)
    figure["layout"]["yaxis"]["autorangeoptions"] = {"clipmax": 100}
    return figure


def retrieval_grid_png(run: Path, dataset: Dataset, out: Path, num_queries: int = 6) -> Path:
    """Draws random queries and their nearest neighbours, framed green if right, red if wrong."""
    folder = stored_run.read(run)
    if folder.test is None:
        raise FileNotFoundError(f"{run} has no embeddings/test.npz yet: let the run finish")
    result = queries.find(folder.test, bool(folder.config.get("normalize", True)))
    rows = queries.random_draw(result, num_queries)
    if not rows:
        raise ValueError(f"{run} has no test class with two images: nothing to retrieve")
    columns = result.positions.shape[1]
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        figure = Figure(figsize=(1.0 * (columns + 1) + 0.5, 1.18 * len(rows) + 0.4), dpi=150)
        grid = figure.subplots(
            len(rows), columns + 2, squeeze=False, width_ratios=[1, 0.2] + [1] * columns
        )
        for axes, query in zip(grid, rows, strict=True):
            _draw_row(axes, query, folder.test, result, dataset)
        grid[0, 0].set_title("query", fontsize=10, loc="left")
        grid[0, 2].set_title("nearest images, nearest first", fontsize=10, loc="left")
        figure.subplots_adjust(
            left=0.01, right=0.99, top=0.94, bottom=0.04, wspace=0.08, hspace=0.3
        )
        _save(figure, out)
    return out


def _draw_row(
    axes: Any,
    query: int,
    test: stored_run.TestEmbeddings,
    result: queries.ResultItems,
    dataset: Dataset,
) -> None:
    for ax in axes:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
    axes[0].imshow(dataset.image(int(test.indices[query])))
    for rank, ax in enumerate(axes[2:]):
        position = result.positions[query, rank]
        if position < 0:
            continue
        right = bool(result.matches[query, rank])
        ax.imshow(dataset.image(int(test.indices[position])))
        ax.spines[:].set(visible=True, linewidth=3, color="#1a7f4b" if right else "#bf2f29")
        if not right:
            ax.spines[:].set(linestyle=(0, (2, 1)), capstyle="butt")
        ax.set_xlabel(f"{'✓' if right else '✗'} {result.closeness(query, rank)}", labelpad=3)


def _save(figure: Figure, out: Path) -> None:
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})
    replace_bytes(out, file.getvalue())


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


def _trace(name: str, x: list[Any], y: list[Any], line: Json) -> Json:
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": line}


def _figure(traces: list[Json], title: str, chosen: int | None, hover: str) -> Json:
    layout: Json = {
        "xaxis": {"title": {"text": "epochs"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": title}},
    }
    if chosen is not None:
        line = {"color": "var(--text)", "width": 1, "dash": "dash"}
        layout["shapes"] = [
            {
                "type": "line",
                "x0": chosen,
                "x1": chosen,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": line,
            }
        ]
        layout["annotations"] = [
            {
                "x": chosen, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False,
                "text": "kept", "font": {"size": 12},
            }
        ]  # fmt: skip
    return {"data": [trace | {"hovertemplate": hover} for trace in traces], "layout": layout}
