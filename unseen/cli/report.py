"""`unseen report`: the page of a stored run."""

from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.terminal import MovedData, console, display, stages
from unseen.experiment.run_context import reopen
from unseen.reports import page


def report(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    data: MovedData = None,
) -> None:
    """Example: unseen report runs/glyphs-multi_similarity-seed0

    Writes report/index.html in the run's folder: one file, opens anywhere, needs no network.
    """
    with display() as (_, watch):
        context, _folder = reopen(run, watch, data)
        written = page.write(run, context.dataset, stages(watch))
    console.print(f"report: {written}")
