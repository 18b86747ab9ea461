"""`unseen evaluate compare`: two runs on the same queries."""

from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.options import Html, MovedData
from unseen.cli.terminal import console, display
from unseen.reports.compare_runs import compare_runs, comparison_table, conclusion, write_page
from unseen.runs.prepare import reopen


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
    console.print(conclusion(pair))
    if html is not None:
        with display() as (_, callbacks):
            context, _folder = reopen(first, callbacks, data)
            write_page(pair, context.dataset, html)
        console.print(f"page: {html}")
