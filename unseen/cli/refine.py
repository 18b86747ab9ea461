"""`unseen refine`: what post-processing would bring, measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch import Tensor

from unseen import catalogue, outside
from unseen.cli.terminal import MovedData, console, display
from unseen.evaluation.evaluate import evaluate
from unseen.experiment.run_context import RunContext, Watch, computing, reopen
from unseen.experiment.trained import Trained
from unseen.neighbours.space import to_sphere
from unseen.reports.tables import metric_title
from unseen.search import refine as refining
from unseen.search.refine_scores import reranked_scores

METRICS = ("recall@1", "map_at_r")


def refine(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    top: Annotated[int, typer.Option(min=1, help="neighbours that expand a query")] = 3,
    k1: Annotated[int, typer.Option(min=1, help="of k-reciprocal re-ranking")] = 20,
    k2: Annotated[int, typer.Option(min=1, help="of k-reciprocal re-ranking")] = 6,
    classical: Annotated[
        list[str] | None,
        typer.Option(help="a linear metric fitted on training classes: nca, ./mine.py:Mine, ..."),
    ] = None,
    data: MovedData = None,
) -> None:
    """Example: unseen refine runs/birds

    Whitening, query expansion, database augmentation and k-reciprocal re-ranking on the validation
    classes, beside the vectors as they are; `--classical NAME`, once or more often, adds metrics of
    `unseen catalogue classical` or of your own. The test classes are not read.
    """
    metrics = {name: linear_metric(name) for name in classical or ()}
    trained = Trained.open(run)
    with display() as (_, watch):
        context, _folder = reopen(run, watch, data)
        if not context.config.normalise:
            raise ValueError(f"{run} compares raw vectors: post-processing here is for unit ones")
        with computing(context):
            rows = compared(context, trained, watch, top, k1, k2, metrics)
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
    made = catalogue.create("classical", name)
    if not (callable(getattr(made, "fit", None)) and callable(getattr(made, "transform", None))):
        raise ValueError(f"{name} must have fit(features, labels) and transform(features)")
    return made


def compared(
    context: RunContext,
    trained: Trained,
    watch: Watch,
    top: int,
    k1: int,
    k2: int,
    metrics: Mapping[str, Any],
) -> dict[str, dict[str, float]]:
    """Scores before and after each of the methods."""

    def embedded(what: str) -> Tensor:
        items = getattr(context.split, what)
        progress = watch.of(f"embedding {what} classes")
        return to_sphere(context.embed(trained.network, trained.transform, items, progress))

    train, held = embedded("train"), embedded("validation")
    seen, labels = (
        torch.from_numpy(context.dataset.labels[items])
        for items in (context.split.train, context.split.validation)
    )
    whitened = refining.whitening(train)(held)
    sim, found = refining.neighbours(held, top)
    asked = refining.expanded(held, held[found], sim)
    rows = {
        "as they are": _scores(held, labels),
        "PCA-whitening, fitted on training classes": _scores(whitened, labels),
        f"query expansion by {top}": _scores(asked, labels, held),
        f"database augmentation by {top}": _scores(refining.augmented(held, top), labels),
        f"k-reciprocal re-ranking ({k1}, {k2})": reranked_scores(held, labels, METRICS, k1, k2),
    }
    for name, metric in metrics.items():
        metric.fit(train, seen)
        title = f"{outside.short_name(name)}, fitted on training classes"
        rows[title] = _scores(metric.transform(held), labels)
    return rows


def _scores(vectors: Tensor, labels: Tensor, gallery: Tensor | None = None) -> dict[str, float]:
    theirs = {}
    if gallery is not None:
        theirs = {"gallery_embeddings": gallery, "gallery_labels": labels}
        theirs["positions"] = torch.arange(len(labels))
    made = evaluate(vectors, labels, **theirs, metrics=METRICS, resamples=0)  # type: ignore[arg-type]
    return {name: made.values[name].value for name in METRICS}
