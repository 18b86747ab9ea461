"""Layers as descriptors, after N. Vo and J. Hays (WACV 2019): recall of each on training and on
unseen classes as bars, over time as curves, and queries on which two layers disagree."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unseen.core.contracts import Dataset
from unseen.core.html_templates import PageSection
from unseen.reports import figures, thumbnails
from unseen.reports.figures import Plot
from unseen.reports.score_tables import percent
from unseen.reports.stored_run import LayerAnswers, StoredRun
from unseen.reports.tables import Table

Json = dict[str, Any]

SHOWN = 6  # disagreements of a kind
SEED = 0
MOST_CURVES = 6  # layers, counted from the loss
COLORS = ("#4c78a8", "#b279a2", "#9d755d", "#54a24b", "#e0a030", "var(--accent)")
ON_TEST = (
    "Read on test classes: for looking. To choose a layer use descriptor=best, which reads "
    "validation classes."
)


@dataclass(frozen=True)
class Disagreements:
    """Queries that are right at one layer and wrong at another: some of them, and how many."""

    better: str
    worse: str
    count: int
    rows: list[thumbnails.Row]


def layer_table(table: Json) -> Table:
    """One row per layer, from the image to the loss."""
    rows = [
        [row["layer"], f"{row['size']:,}", percent(row["train"]), percent(row["test"])]
        for row in table["layers"]
    ]
    best = max(row["test"] for row in table["layers"])
    marks = ["main" if row["test"] == best else "" for row in table["layers"]]
    heads = ["layer", "size", "train classes", "test classes"]
    return Table(heads, rows, ON_TEST, marks=marks, numbers=range(1, 4))


def bars_figure(run: StoredRun) -> Json | None:
    """Two bars per layer: training classes and test classes."""
    if not run.layers:
        return None
    rows = run.layers["layers"]
    series = {
        "training classes": ("var(--muted)", [row["train"] for row in rows]),
        "test classes": ("var(--accent)", [row["test"] for row in rows]),
    }
    return figures.bars_figure([row["layer"] for row in rows], series)


def layers_by_epoch(run: StoredRun) -> dict[int, dict[str, dict[str, float]]]:
    """Number of epochs done -> split -> layer -> recall, where layers were compared."""
    return {event.epoch + 1: event.layers for event in run.epochs if event.layers}


def curves_figure(run: StoredRun) -> Json | None:
    """Recall of the last layers over epochs: solid on unseen, dotted on training classes."""
    recall = layers_by_epoch(run)
    if not recall:
        return None
    unseen, last = _unseen_split(recall), recall[max(recall)]
    # the event log keeps the order of the layers; the last ones are nearest to the loss
    names = list(last[unseen])[-MOST_CURVES:]
    traces = []
    for name, color in zip(names, COLORS[-len(names) :], strict=True):
        for split, dash in ((unseen, "solid"), ("train", "dot")):
            title = name if split == unseen else f"{name}, training classes"
            y = [100 * result[split][name] for result in recall.values()]
            traces.append(figures.line(title, list(recall), y, color, dash))
    axes = {"xaxis": {"title": {"text": "epochs"}}, "yaxis": figures.RECALL}
    return {"data": traces, "layout": axes}


def section(run: StoredRun, dataset: Dataset, drawn: Json) -> PageSection:
    """For the page: frames for the figures there are, and disagreements."""
    plots = []
    if drawn.get("layers"):
        title = "Recall@1 by layer: grey on training classes, coloured on test classes"
        plots.append(Plot("layers", f"{title}. {ON_TEST}", title, []))
    if curves := drawn.get("layer-curves"):
        split = _unseen_split(layers_by_epoch(run))
        note = "Test classes were watched during training." if split == "test" else ""
        title = f"Recall@1 over time: solid on {split} classes, dotted on training classes"
        lines = [each for each in figures.lines_of(curves) if each.style == "solid"]
        plots.append(Plot("layer-curves", f"{title}. {note}", title, lines))
    result = disagreements(run.layer_answers, dataset) if run.layer_answers else []
    return PageSection.of("reports/layers", "Layers", plots=plots, disagreements=result)


def disagreements(answers: LayerAnswers, dataset: Dataset) -> list[Disagreements]:
    """Of the last layer and the best of the others, both ways."""
    recall = np.nanmean(answers.right, axis=1)
    last = len(answers.names) - 1
    if last < 1:
        return []
    other = int(recall[:-1].argmax())
    rng, result = np.random.default_rng(SEED), []
    for better, worse in ((other, last), (last, other)):
        answered = answers.nearest[worse] >= 0
        differ = np.flatnonzero(
            (answers.right[better] == 1) & (answers.right[worse] == 0) & answered
        )
        some = rng.permutation(differ)[:SHOWN]
        rows = [_row(query, better, worse, answers, dataset) for query in some]
        names = answers.names[better], answers.names[worse]
        result.append(Disagreements(*names, len(differ), rows))
    return result


def _unseen_split(recall: dict[int, dict[str, dict[str, float]]]) -> str:
    return "test" if "test" in recall[max(recall)] else "validation"


def _row(
    query: int, better: int, worse: int, answers: LayerAnswers, dataset: Dataset
) -> thumbnails.Row:
    result = []
    for layer, is_right in ((better, True), (worse, False)):
        item = answers.indices[answers.nearest[layer, query]]
        result.append(thumbnails.answer(item, dataset, is_right, answers.names[layer]))
    return thumbnails.Row(thumbnails.query(answers.indices[query], dataset), result)
