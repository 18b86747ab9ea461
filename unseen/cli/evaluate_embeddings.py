"""`unseen evaluate embeddings`: retrieval scores of embeddings of any model."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from unseen.cli.terminal import console, display
from unseen.evaluation import evaluate as library
from unseen.evaluation.query_sample import sampled
from unseen.evaluation.user_embeddings import Items, as_labels, as_matrix, read_items, read_labels
from unseen.reports import score_tables
from unseen.training.distributed import joined
from unseen.training.result import Result, rows_of


def embeddings(
    queries: Annotated[Path, typer.Argument(help="a matrix: .npy, .npz, .csv, .parquet")],
    gallery: Annotated[
        Path | None, typer.Argument(help="what is searched", show_default="the queries")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="of the queries", show_default="those in the same file")
    ] = None,
    gallery_labels: Annotated[Path | None, typer.Option(help="of the gallery")] = None,
    metrics: Annotated[
        str, typer.Option(help="which", show_default=", ".join(library.METRICS))
    ] = ",".join(library.METRICS),
    normalize: Annotated[bool, typer.Option(help="cosine, or Euclidean distance")] = True,
    over: Annotated[str, typer.Option(help="intervals over queries or classes")] = "queries",
    sample: Annotated[
        int | None, typer.Option(help="estimate from so many queries", show_default="all")
    ] = None,
) -> None:
    """Example: unseen evaluate embeddings photos.npz

    Scores of the embeddings of any model, with intervals. `unseen embed` writes vectors and labels
    into one file; where the labels lie in a file of their own, or a gallery answers:

    unseen evaluate embeddings x.npy --labels y.npy

    unseen evaluate embeddings q.npy g.npy --labels ql.npy --gallery-labels gl.npy
    """
    if gallery is None and gallery_labels is not None:
        raise ValueError("--gallery-labels goes with a gallery")
    if over not in ("queries", "classes"):
        raise ValueError(f"--over must be queries or classes, got {over}")
    sides = [_read(queries, labels, "--labels")]
    sides += [] if gallery is None else [_read(gallery, gallery_labels, "--gallery-labels")]
    items = [as_matrix(side.embeddings) for side in sides]
    names = as_labels(*(side.labels for side in sides))
    drawn = None if sample is None else sampled(names[0], sample)
    _exact(items, names, metrics.split(","), normalize, over, drawn)


def _read(file: Path, labels: Path | None, option: str) -> Items:
    """Vectors with their labels, from two files or one."""
    items = read_items(file)
    names = items.labels if labels is None else read_labels(labels)
    if names is None:
        raise ValueError(
            f"{file} holds no labels: {option} FILE says where they are; of `unseen embed` "
            "and `unseen data features` the .npz holds them"
        )
    return Items(items.embeddings, names)


def _exact(
    items: list[torch.Tensor],
    labels: list[torch.Tensor],
    metrics: list[str],
    normalize: bool,
    over: str,
    drawn: torch.Tensor | None,
) -> None:
    total, positions = len(items[0]), None
    if drawn is not None:
        positions = drawn if len(items) == 1 else None
        items, labels = [items[0][drawn], items[-1]], [labels[0][drawn], labels[-1]]
    with joined("cpu") as processes, display() as (_, callbacks):
        result = library.evaluate(
            items[0],
            labels[0],
            gallery_embeddings=items[1] if len(items) > 1 else None,
            gallery_labels=labels[1] if len(labels) > 1 else None,
            positions=positions,
            metrics=metrics,
            normalize=normalize,
            intervals="classes" if over == "classes" else "queries",
            progress=callbacks.of("evaluation"),
            processes=processes if processes.are_several else None,
        )
    if not processes.is_first:
        return
    if drawn is not None:
        console.print(f"estimated from {len(drawn):,} of {total:,} queries, drawn by class")
    console.print(score_tables.score_table(Result(rows_of({"embeddings": result}))))
    twice = f"; {result.compared_twice:.2%} of the pairs compared twice"
    console.print(score_tables.counted(result.counts) + (twice if result.compared_twice else ""))
    for line in library.why_undefined(result.counts):
        console.print(line)
