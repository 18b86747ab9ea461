"""`unseen evaluate`: evaluate a stored run again, embeddings of any model, or two runs."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer

from unseen.cli.options import Html, MovedData, OtherData, RunPath, group
from unseen.cli.terminal import console, display
from unseen.evaluation import evaluate as retrieval_scores
from unseen.evaluation.open_set import OpenSet
from unseen.evaluation.query_sample import sampled
from unseen.evaluation.user_embeddings import Items, as_labels, as_matrix, read_items, read_labels
from unseen.neighbors.space import to_sphere
from unseen.reports import layer_report, score_tables
from unseen.reports.compare_runs import compare_runs, comparison_table, write_page
from unseen.reports.generalization import domains_table, open_set_tables, shots_table
from unseen.runs.evaluate_layers import compare_layers
from unseen.runs.evaluate_run import evaluate_run
from unseen.runs.few_shots import LAST, FewShots, few_shots
from unseen.runs.open_set_of_run import open_set_of
from unseen.runs.other_data import Forgetting, forgetting, on_other_data
from unseen.runs.prepare import reopen
from unseen.search.refine import refined_scores
from unseen.training.distributed import joined
from unseen.training.result import Result, rows_of
from unseen.training.selected_weights import read_selection

app = group(
    "Example: unseen evaluate run runs/birds\n\n"
    "Evaluate a stored run or the embeddings of any model, or compare two runs."
)


@app.command()
def run(
    run: RunPath,
    layers: Annotated[str | None, typer.Option(help="all, or names: stage2,pooled")] = None,
    data: MovedData = None,
    on: Annotated[
        str | None, typer.Option(help="evaluate on other data: a folder, a table, ...")
    ] = None,
    also: OtherData = None,
    shots: Annotated[
        int | None, typer.Option(help="images of each test class that adapt the last layer")
    ] = None,
    adapt: Annotated[
        str, typer.Option(help="of --shots: last, or lora, adapters beside the layers")
    ] = LAST,
    open_set: Annotated[bool, typer.Option(help="some classes are not in the gallery")] = False,
    time: Annotated[
        str | None, typer.Option(help="of --open-set: a column, later items ask earlier ones")
    ] = None,
) -> None:
    """Example: unseen evaluate run runs/glyphs-multi_similarity-seed0

    Evaluates the stored network on the test items the run was trained with, also of a run that was
    stopped. Each evaluation is a file of its own in readings/, and the manifest counts them.
    `--layers all` compares the run's layers on training and test classes instead. `--on OTHER`
    evaluates all classes of other data that the run was not trained on.

    unseen evaluate run RUN --shots 5 --open-set --also cars/

    measures what 5 labelled images of each test class add, whether queries of classes that the
    gallery does not have are recognised as unknown, and what the training did to other data; the
    run's report shows it.
    """
    extra = shots is not None or also or open_set
    if on is not None and (layers is not None or data is not None):
        raise ValueError("--on goes without --layers and --data")
    if time is not None and not open_set:
        raise ValueError("--time goes with --open-set")
    if adapt != LAST and shots is None:
        raise ValueError("--adapt goes with --shots")
    if extra and (on is not None or layers is not None):
        raise ValueError("--shots, --also and --open-set go without --on and --layers")
    if not extra:
        _evaluate(run, layers, data, on)
    if also:
        with display() as (_, callbacks):
            change = forgetting(run, tuple(also), callbacks)
        _print_forgetting(change)
    if shots is not None or open_set:
        _adapted(run, data, shots, adapt, open_set, time)


def _evaluate(run: Path, layers: str | None, data: str | None, on: str | None) -> None:
    with display() as (_, callbacks):
        context, folder = on_other_data(run, on, callbacks) if on else reopen(run, callbacks, data)
        if not folder.file("weights.safetensors").exists():
            raise ValueError(
                f"{run} has no weights yet: it was stopped before its first epoch ended"
            )
        if layers is None:
            purpose = "unseen evaluate run" + (f" --on {shlex.quote(on)}" if on else "")
            result = evaluate_run(context, folder, read_selection(folder), purpose, callbacks, on)
            table = score_tables.score_table(result)
        else:
            names = [] if layers == "all" else layers.split(",")
            layers_of_run = compare_layers(context, folder, names, callbacks)
            table = layer_report.layer_table(layers_of_run).terminal("R@1 by layer, %")
    console.print(table)


def _adapted(
    run: Path, data: str | None, shots: int | None, adapt: str, open_set: bool, time: str | None
) -> None:
    """A few labelled images of each test class, and queries of unknown classes."""
    with display() as (_, callbacks):
        context, folder = reopen(run, callbacks, data)
        gain = shots and few_shots(context, folder, shots, callbacks, adapt=adapt)
        unknown = open_set_of(context, folder, callbacks, time) if open_set else None
    if gain:
        _print_shots(gain)
    if unknown is not None:
        _print_open_set(unknown)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="an evaluated run")],
    second: Annotated[Path, typer.Argument(help="another, on the same test items")],
    html: Html = None,
    data: MovedData = None,
) -> None:
    """Example: unseen evaluate compare runs/margin runs/triplet --html page.html

    Differences are paired by query, their intervals are over classes: is the second better, or is
    it chance? Runs with other test items are refused. `--html changed.html` shows the queries that
    only one of the runs answers rightly.
    """
    pair = compare_runs(first, second)
    one, two = (run.name for run in pair.runs)
    console.print(comparison_table(pair).terminal(f"B, {two},\nagainst A, {one}, %"))
    console.print(pair.conclusion)
    if html is not None:
        with display() as (_, callbacks):
            context, _folder = reopen(first, callbacks, data)
            write_page(pair, context.dataset, html)
        console.print(f"page: {html}")


def _print_shots(result: FewShots) -> None:
    """Before, after and the gain."""
    console.print(shots_table([result]).terminal())
    left = f"; {result.too_small} too small to give any" if result.too_small else ""
    console.print(
        f"means of {result.episodes} episodes, {result.classes} test classes{left}; the shots "
        "neither ask nor answer; in brackets the 95 % interval over episodes and classes"
    )


def _print_forgetting(result: Forgetting) -> None:
    """Home first, then the other domains, and what must be said."""
    console.print(domains_table(result).terminal())
    if result.warning:
        console.print(result.warning, style="yellow")


def _print_open_set(result: OpenSet) -> None:
    """Scores without a threshold, then what each threshold does."""
    console.print(
        f"{result.how}: {result.known_queries:,} known queries of {result.known_classes} classes, "
        f"{result.unknown_queries:,} unknown of {result.unknown_classes}, {result.gallery:,} "
        "answers"
    )
    for table in open_set_tables(result):
        console.print(table.terminal())
    if result.groups:
        console.print(
            f"{result.groups.items:,} unknown queries fall into {result.groups.number} groups "
            "(they "
            f"have {result.groups.classes} classes): adjusted Rand index {result.groups.ari:.3f}"
        )


@app.command()
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
        str, typer.Option(help="which", show_default=", ".join(retrieval_scores.METRICS))
    ] = ",".join(retrieval_scores.METRICS),
    normalize: Annotated[bool, typer.Option(help="cosine, or Euclidean distance")] = True,
    over: Annotated[str, typer.Option(help="intervals over queries or classes")] = "queries",
    sample: Annotated[
        int | None, typer.Option(help="estimate from so many queries", show_default="all")
    ] = None,
    rerank: Annotated[
        Literal["k-reciprocal", "expansion"] | None,
        typer.Option(help="also the means after re-ranking", show_default="none"),
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
    if rerank is not None and (gallery is not None or drawn is not None or not normalize):
        raise ValueError("--rerank goes without a gallery, --sample and --no-normalize")
    _print_exact(items, names, metrics.split(","), normalize, over, drawn)
    if rerank is not None:
        after = refined_scores(rerank, to_sphere(items[0]), names[0], metrics.split(","))
        for name, value in after.items():
            title = score_tables.metric_title(name)
            console.print(f"{title} after {rerank}: {score_tables.percent(value)} %")


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


def _print_exact(
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
        result = retrieval_scores.evaluate(
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
    for line in retrieval_scores.why_undefined(result.counts):
        console.print(line)
