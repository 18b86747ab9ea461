"""`unseen data noise`: whose label may be wrong, to look at and to decide."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from unseen.cli.options import MovedData, OutFolder, Settings
from unseen.cli.terminal import console, display
from unseen.config import schema as configs
from unseen.config.find_data import data_table
from unseen.data.images import table_file
from unseen.reports.label_review import write
from unseen.runs.label_issues import LabelIssues, label_issues_of_data, label_issues_of_run
from unseen.runs.prepare import Callbacks, reopen
from unseen.training.run_folder import RunFolder

NAMED = 10  # label issues on the terminal
ON_PAGE = 200


def noise(
    what: Annotated[str, typer.Argument(help="a run, a file of features, or any data set")],
    out: OutFolder,
    settings: Settings = None,
    fraction: Annotated[
        float, typer.Option(help="of all items that the list holds", min=0.0, max=1.0)
    ] = 0.1,
    with_test: Annotated[
        bool, typer.Option("--test", help="of a run also the test classes; its manifest notes it")
    ] = False,
    data: MovedData = None,
) -> None:
    """Example: unseen data noise photos/ --out review

    Lists the items whose neighbours and class centres speak for another label, the most suspicious
    first, in label_issues.csv; index.html shows them to be decided by key (keep, move, drop), and
    the table downloaded there is what `unseen train` takes. Nothing else is changed.
    """
    with display() as (_, callbacks):
        result = _result(what, settings or [], out, callbacks, with_test, data)
        places = result.scores.order[: round(fraction * len(result.items))].tolist()
        listed = result.listed(places)
        table_file.write(out / "label_issues.csv", listed)
        page = out / "index.html"
        if result.has_images and places:
            write(page, result, places[:ON_PAGE], callbacks.of("images"))
    table = Table(Column("item", overflow="fold"), "label", "rather", "issue_score")
    for row in list(zip(*listed.values(), strict=True))[:NAMED]:
        table.add_row(*map(Text, row))
    console.print(table)
    console.print(
        f"by {result.by}: {result.summary}; the first {len(places):,} are in "
        f"{out / 'label_issues.csv'}"
    )
    if RunFolder(Path(what)).is_started and not with_test:
        console.print("test classes were left alone; --test looks at them too")
    if result.has_images and places:
        console.print(f"decide on them: open {shlex.quote(str(page))}")


def _result(
    what: str,
    settings: list[str],
    out: Path,
    callbacks: Callbacks,
    with_test: bool,
    data: str | None,
) -> LabelIssues:
    folder = RunFolder(Path(what))
    if not folder.is_started:
        if data is not None or with_test:
            raise ValueError(f"--data and --test are for runs, and {what} is none")
        values = configs.override({"data": data_table(what)}, settings)
        return label_issues_of_data(configs.make(values), out, callbacks)
    if settings:
        raise ValueError(f"{what} is a run, whose settings stand: leave {settings[0]} out")
    context, folder = reopen(folder.path, callbacks, data)
    return label_issues_of_run(context, folder, callbacks, with_test)
