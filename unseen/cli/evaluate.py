"""`unseen evaluate`: evaluate a stored run again, embeddings of any model, or two runs."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.compare import compare
from unseen.cli.evaluate_embeddings import embeddings
from unseen.cli.extra_evaluations import print_forgetting, print_open_set, print_shots
from unseen.cli.options import MovedData, OtherData, RunPath, group
from unseen.cli.terminal import console, display
from unseen.reports import layer_report, score_tables
from unseen.runs.evaluate_layers import compare_layers
from unseen.runs.evaluate_run import evaluate_run
from unseen.runs.few_shot_layers import LAST
from unseen.runs.few_shots import few_shots
from unseen.runs.forgetting import forgetting
from unseen.runs.open_set_of_run import open_set_of
from unseen.runs.other_data import on_other_data
from unseen.runs.prepare import reopen
from unseen.training.selected_weights import read_selection

app = group(
    "Example: unseen evaluate run runs/birds\n\n"
    "Evaluate a stored run or the embeddings of any model, or compare two runs."
)
app.command("embeddings")(embeddings)
app.command("compare")(compare)


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
        print_forgetting(change)
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
        print_shots(gain)
    if unknown is not None:
        print_open_set(unknown)
