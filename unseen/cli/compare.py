"""`unseen compare`: two runs on the same queries."""

from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.terminal import MovedData, console, display
from unseen.experiment.run_context import reopen
from unseen.reports.comparison import compare_runs, comparison_table, verdict, write_page


def compare(
    first: Annotated[Path, typer.Argument(help="a judged run")],
    second: Annotated[Path, typer.Argument(help="another, on the same test items")],
    html: Annotated[Path | None, typer.Option(help="a page of the queries that changed")] = None,
    data: MovedData = None,
) -> None:
    """Example: unseen compare runs/glyphs-margin-seed0 runs/glyphs-triplet-seed0

    Differences are paired by query, their intervals are over classes: is the second better, or is
    it chance? Runs with other test items are refused. `--html changed.html` shows the queries that
    only one of the runs answers rightly.
    """
    pair = compare_runs(first, second)
    console.print(comparison_table(pair))
    console.print(verdict(pair))
    if html is not None:
        with display() as (_, watch):
            context, _folder = reopen(first, watch, data)
            write_page(pair, context.dataset, html)
        console.print(f"page: {html}")
