"""`unseen diagnose`: what the embedding space of a run looks like, in words."""

from pathlib import Path
from typing import Annotated

import typer

from unseen import catalogue
from unseen.cli.terminal import MovedData, console, display
from unseen.experiment.diagnose import diagnose as look_at
from unseen.experiment.run_context import reopen
from unseen.reports.diagnosis import printed


def diagnose(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    robustness: Annotated[
        bool, typer.Option(help="also recall with a part of each picture's local features")
    ] = False,
    also: Annotated[
        list[str] | None,
        typer.Option(help="a further diagnostic: its name, or ./mine.py:Mine; may be repeated"),
    ] = None,
    data: MovedData = None,
) -> None:
    """Example: unseen diagnose runs/glyphs-multi_similarity-seed0

    Says what it sees on training and unseen classes (collapse, spectrum, hubness, the gap between
    seen and unseen, a better layer, suspected wrong labels) and the likely remedy. The report shows
    it too, with the suspects' pictures: unseen report RUN.
    """
    for name in also or ():
        catalogue.check("diagnostics", name, {})
    with display() as (_, watch):
        context, folder = reopen(run, watch, data)
        diagnosis = look_at(context, folder, watch, with_robustness=robustness, also=also or ())
    console.print(printed(diagnosis, context.dataset))
