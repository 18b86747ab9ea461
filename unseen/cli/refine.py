"""`unseen inspect refine`: what post-processing would bring, measured."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch import Tensor

from unseen.cli.options import MovedData, RunPath
from unseen.cli.terminal import console, display
from unseen.core import custom_components, registry
from unseen.evaluation.evaluate import evaluate
from unseen.neighbors.space import to_sphere
from unseen.reports.score_tables import metric_title
from unseen.runs.prepare import Callbacks, RunContext, computing, reopen
from unseen.runs.trained_run import Trained
from unseen.search import refine as refining
from unseen.search.refine import K1, K2, TOP, refined_scores

METRICS = ("recall@1", "map_at_r")


def refine(
    run: RunPath,
    classical: Annotated[
        list[str] | None,
        typer.Option(help="a linear metric fitted on training classes: nca, ./mine.py:Mine, ..."),
    ] = None,
    data: MovedData = None,
) -> None:
    """Example: unseen inspect refine runs/birds

    Whitening, query expansion, database augmentation and k-reciprocal re-ranking on the validation
    classes, beside the vectors as they are; `--classical NAME`, once or more often, adds metrics of
    `unseen catalogue classical` or of your own. The test classes are not read.
    """
    metrics = {name: linear_metric(name) for name in classical or ()}
    trained = Trained.open(run)
    with display() as (_, callbacks):
        context, _folder = reopen(run, callbacks, data)
        if not context.config.evaluation.normalize:
            raise ValueError(f"{run} compares raw vectors: post-processing here is for unit ones")
        with computing(context):
            rows = compared(context, trained, callbacks, metrics)
    table = Table(title="validation classes")
    table.add_column("", overflow="fold")
    for name in METRICS:
        table.add_column(metric_title(name), justify="right")
    before = next(iter(rows.values()))
    for name, scores in rows.items():
        cells = [f"{100 * scores[m]:.1f} ({100 * (scores[m] - before[m]):+.1f})" for m in METRICS]
        table.add_row(name, *cells)
    console.print(table)


def linear_metric(name: str) -> Any:
    """A classical metric by name: it fits features and labels, and transforms features."""
    metric = registry.create("classical", name)
    if not (
        callable(getattr(metric, "fit", None)) and callable(getattr(metric, "transform", None))
    ):
        raise ValueError(f"{name} must have fit(features, labels) and transform(features)")
    return metric


def compared(
    context: RunContext,
    trained: Trained,
    callbacks: Callbacks,
    metrics: Mapping[str, Any],
) -> dict[str, dict[str, float]]:
    """Scores before and after each of the methods."""

    def embedded(what: str) -> Tensor:
        items = getattr(context.split, what)
        progress = callbacks.of(f"embedding {what} classes")
        return to_sphere(context.embed(trained.network, trained.transform, items, progress))

    train, validation = embedded("train"), embedded("validation")
    seen, labels = (
        torch.from_numpy(context.dataset.labels[items])
        for items in (context.split.train, context.split.validation)
    )
    whitened = refining.whitening(train)(validation)
    refined = partial(refined_scores, vectors=validation, labels=labels, metrics=METRICS)
    rows = {
        "as they are": _scores(validation, labels),
        "PCA-whitening, fitted on training classes": _scores(whitened, labels),
        f"query expansion by {TOP}": refined("expansion"),
        f"database augmentation by {TOP}": _scores(refining.augmented(validation, TOP), labels),
        f"k-reciprocal re-ranking ({K1}, {K2})": refined("k-reciprocal"),
    }
    for name, metric in metrics.items():
        metric.fit(train, seen)
        title = f"{custom_components.short_name(name)}, fitted on training classes"
        rows[title] = _scores(metric.transform(validation), labels)
    return rows


def _scores(vectors: Tensor, labels: Tensor) -> dict[str, float]:
    result = evaluate(vectors, labels, metrics=METRICS, resamples=0)
    return {name: result.values[name].value for name in METRICS}
