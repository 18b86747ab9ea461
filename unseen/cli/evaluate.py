"""`unseen evaluate`: judge a stored run again, its layers, or embeddings of any model."""

import shlex
from pathlib import Path
from typing import Annotated

import torch
import typer

from unseen.cli.further import Further
from unseen.cli.terminal import MovedData, console, display
from unseen.evaluation import evaluate as library
from unseen.evaluation.approximate import approximate as through_index
from unseen.evaluation.cost import cost
from unseen.evaluation.given import Items, as_labels, as_matrix, read_items, read_labels
from unseen.evaluation.sample import sampled
from unseen.experiment.judge import judge
from unseen.experiment.layers import compare_layers
from unseen.experiment.other_data import on_other_data
from unseen.experiment.run_context import reopen
from unseen.experiment.shot_layers import LAST
from unseen.reports import layers as layer_tables
from unseen.reports import tables
from unseen.training.processes import joined
from unseen.training.result import Result, rows_of
from unseen.training.selection import read_selection

LONG = 20.0  # seconds from which the cost is said beforehand


def evaluate(
    run: Annotated[Path | None, typer.Argument(help="a folder made by `unseen train`")] = None,
    layers: Annotated[str | None, typer.Option(help="all, or names: stage2,pooled")] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="a matrix: .npy, .npz, .csv, .parquet")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="its labels", show_default="those in the same file")
    ] = None,
    gallery: Annotated[
        Path | None, typer.Option(help="who answers", show_default="the same")
    ] = None,
    gallery_labels: Annotated[Path | None, typer.Option(help="their labels")] = None,
    metrics: Annotated[
        str, typer.Option(help="of --embeddings", show_default=", ".join(library.METRICS))
    ] = ",".join(library.METRICS),
    normalise: Annotated[bool, typer.Option(help="cosine, or Euclidean distance")] = True,
    over: Annotated[str, typer.Option(help="intervals over queries or classes")] = "queries",
    approximate: Annotated[bool, typer.Option(help="with a faiss index")] = False,
    queries: Annotated[
        int | None, typer.Option(help="estimate from so many, drawn by class", show_default="all")
    ] = None,
    data: MovedData = None,
    on: Annotated[
        str | None, typer.Option(help="judge a run on other data: a folder, a table, ...")
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="other data, before and after training; repeatable")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(help="pictures of each test class that adapt the last layer")
    ] = None,
    adapt: Annotated[
        str, typer.Option(help="of --shots: last, or lora, adapters beside the layers")
    ] = LAST,
    open_set: Annotated[bool, typer.Option(help="some classes are not in the gallery")] = False,
    time: Annotated[
        str | None, typer.Option(help="of --open-set: a column, later items ask earlier ones")
    ] = None,
) -> None:
    """Example: unseen evaluate runs/glyphs-multi_similarity-seed0

    Reads the test classes with the stored network, also of a run that was stopped: the items the
    run was trained with, whatever has come to its data since. Each reading is a file of its own in
    readings/, and the manifest keeps count. `--layers all` compares the run's layers on training
    and test classes instead. `--on OTHER` judges all classes of other data that the run was not
    trained on.

    unseen evaluate RUN --shots 5 --open-set --also cars/

    asks what 5 labelled pictures of each test class add, whether queries of classes that the
    gallery does not have are told apart, and what the training did to other data; the run's
    report shows it. Embeddings of any model are judged with

    unseen evaluate --embeddings x.npy --labels y.npy

    or, where the labels lie in the same file, as `unseen embed` writes it,

    unseen evaluate --embeddings photos.npz
    """
    if (run is None) == (embeddings is None):
        raise ValueError("give a run's folder, or --embeddings x.npy --labels y.npy")
    if run is not None:
        if on is not None and (layers is not None or data is not None):
            raise ValueError("--on goes without --layers and --data")
        if time is not None and not open_set:
            raise ValueError("--time goes with --open-set")
        if adapt != LAST and shots is None:
            raise ValueError("--adapt goes with --shots")
        if further := Further(shots, adapt, tuple(also or ()), open_set, time):
            if on is not None or layers is not None:
                raise ValueError("--shots, --also and --open-set go without --on and --layers")
            further.judge(run, data)
            return
        _run(run, layers, data, on)
        return
    assert embeddings is not None, "checked above"
    if gallery is None and gallery_labels is not None:
        raise ValueError("--gallery-labels goes with --gallery")
    if over not in ("queries", "classes"):
        raise ValueError(f"--over must be queries or classes, got {over}")
    held = [_held(embeddings, labels, "--labels")]
    held += [] if gallery is None else [_held(gallery, gallery_labels, "--gallery-labels")]
    items = [as_matrix(each.embeddings) for each in held]
    names = as_labels(*(each.labels for each in held))
    wanted = metrics.split(",")
    if approximate and queries is not None:
        raise ValueError("--queries goes without --approximate")
    if approximate:
        _approximate(items, names, wanted, normalise)
        return
    asked = None if queries is None else sampled(names[0], queries)
    _exact(items, names, wanted, normalise, over, asked)


def _held(embeddings: Path, labels: Path | None, option: str) -> Items:
    """Vectors with their labels, from two files or one."""
    found = read_items(embeddings)
    names = found.labels if labels is None else read_labels(labels)
    if names is None:
        raise ValueError(
            f"{embeddings} holds no labels: {option} FILE says where they are; of `unseen embed` "
            "and `unseen features` the .npz holds them"
        )
    return Items(found.embeddings, names)


def _run(run: Path, layers: str | None, data: str | None, on: str | None) -> None:
    with display() as (_, watch):
        context, folder = on_other_data(run, on, watch) if on else reopen(run, watch, data)
        if not folder.file("weights.safetensors").exists():
            raise ValueError(
                f"{run} has no weights yet: it was stopped before its first epoch ended"
            )
        if layers is None:
            selection = read_selection(folder)
            purpose = f"unseen evaluate --on {shlex.quote(on)}" if on else "unseen evaluate"
            result = judge(context, folder, selection, purpose, watch, on)
        else:
            asked = [] if layers == "all" else layers.split(",")
            compared = compare_layers(context, folder, asked, watch)
    console.print(
        tables.score_table(result) if layers is None else layer_tables.layer_table(compared)
    )


def _exact(
    items: list[torch.Tensor],
    labels: list[torch.Tensor],
    metrics: list[str],
    normalise: bool,
    over: str,
    asked: torch.Tensor | None,
) -> None:
    total, positions = len(items[0]), None
    if asked is not None:
        positions = asked if len(items) == 1 else None
        items, labels = [items[0][asked], items[-1]], [labels[0][asked], labels[-1]]
    price = cost(len(items[0]), items[0].shape[1], len(items[1]) if len(items) > 1 else None)
    with joined("cpu") as processes, display() as (_, watch):
        if price.seconds > LONG and processes.is_first:
            faster = "--queries 20000 estimates it, --approximate is faster"
            console.print(f"exact retrieval: {price}. {faster}")
        found = library.evaluate(
            items[0],
            labels[0],
            gallery_embeddings=items[1] if len(items) > 1 else None,
            gallery_labels=labels[1] if len(labels) > 1 else None,
            positions=positions,
            metrics=metrics,
            normalise=normalise,
            intervals="classes" if over == "classes" else "queries",
            progress=watch.of("judging"),
            processes=processes if processes.are_several else None,
        )
    if not processes.is_first:
        return
    if asked is not None:
        console.print(f"estimated from {len(asked):,} of {total:,} queries, drawn by class")
    console.print(tables.score_table(Result(rows_of({"embeddings": found}))))
    twice = f"; {found.compared_twice:.2%} of the pairs compared twice"
    console.print(tables.counted(found.counts) + (twice if found.compared_twice else ""))


def _approximate(
    items: list[torch.Tensor], labels: list[torch.Tensor], metrics: list[str], normalise: bool
) -> None:
    found = through_index(
        items[0],
        labels[0],
        gallery_embeddings=items[1] if len(items) > 1 else None,
        gallery_labels=labels[1] if len(labels) > 1 else None,
        metrics=metrics,
        normalise=normalise,
    )
    for name, value in found.values.items():
        console.print(f"{tables.metric_title(name)} about {tables.percent(value)} %")
    console.print(
        f"{found.index}: it finds the true nearest neighbour of {found.found_nearest:.1%} of "
        f"{found.checked:,} queries asked exactly",
    )
