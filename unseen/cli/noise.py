"""`unseen data noise`: whose label may be wrong, to look at and to decide."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from unseen import config as configs
from unseen.cli.terminal import MovedData, console, display
from unseen.data.pictures import table_file
from unseen.experiment.run_context import Watch, reopen
from unseen.experiment.suspects import Found, suspects_of_data, suspects_of_run
from unseen.find_data import data_table
from unseen.reports.review import Review, write
from unseen.training.run_folder import RunFolder

NAMED = 10  # suspects on the terminal


def noise(
    what: Annotated[str, typer.Argument(help="a run, a file of features, or any data set")],
    out: Annotated[Path, typer.Option(help="the folder that list and page are written to")],
    settings: Annotated[
        list[str] | None, typer.Argument(help="key=value, e.g. backbone=resnet50")
    ] = None,
    share: Annotated[
        float, typer.Option(help="of all items that the list holds", min=0.0, max=1.0)
    ] = 0.1,
    pictures: Annotated[int, typer.Option(help="suspects on the page, at most", min=1)] = 200,
    with_test: Annotated[
        bool, typer.Option("--test", help="of a run also the test classes; its manifest notes it")
    ] = False,
    data: MovedData = None,
) -> None:
    """Example: unseen data noise photos/ --out review

    Lists the items whose neighbours and class centres speak for another label, the most suspicious
    first, in suspects.csv; index.html shows them to be decided by key (keep, move, drop), and the
    table downloaded there is what `unseen train` takes. Nothing else is changed.
    """
    with display() as (_, watch):
        found = _found(what, settings or [], out, watch, with_test, data)
        listed = found.suspicion.order[: round(share * len(found.items))].tolist()
        names = found.names()
        _write_list(out / "suspects.csv", found, listed, names)
        page = out / "index.html"
        if found.has_pictures and listed:
            some = [found.suspect(place) for place in listed[:pictures]]
            review = Review(found.dataset, names, some, found.columns(), found.key, found.summary)
            write(page, review, watch.of("pictures"))
    console.print(_table(found, listed, names))
    console.print(
        f"by {found.by}: {found.summary}; the first {len(listed):,} are in {out / 'suspects.csv'}"
    )
    if RunFolder(Path(what)).is_started and not with_test:
        console.print("test classes were left alone; --test looks at them too")
    if found.has_pictures and listed:
        console.print(f"decide on them: open {shlex.quote(str(page))}")


def _found(
    what: str, settings: list[str], out: Path, watch: Watch, with_test: bool, data: str | None
) -> Found:
    folder = RunFolder(Path(what))
    if not folder.is_started:
        if data is not None or with_test:
            raise ValueError(f"--data and --test are for runs, and {what} is none")
        values = configs.override({"data": data_table(what)}, settings)
        return suspects_of_data(configs.make(values), out, watch)
    if settings:
        raise ValueError(f"{what} is a run, whose settings stand: leave {settings[0]} out")
    context, folder = reopen(folder.path, watch, data)
    return suspects_of_run(context, folder, watch, with_test)


def _write_list(file: Path, found: Found, listed: Sequence[int], names: Sequence[str]) -> None:
    dataset, told = found.dataset, found.suspicion
    items = found.items[list(listed)]
    label_names = [str(name) for name in dataset.label_names]
    columns: dict[str, list[object]] = {
        "item": [names[item] for item in items],
        "label": [label_names[label] for label in dataset.labels[items]],
        "suggested": [label_names[int(told.suggested[place, 0])] for place in listed],
    }
    numbers = {"suspicion": told.suspicion, "centres": told.centres, "neighbours": told.neighbours}
    for name, values in numbers.items():
        columns[name] = [round(float(values[place]), 4) for place in listed]
    table_file.write(file, columns)


def _table(found: Found, listed: Sequence[int], names: Sequence[str]) -> Table:
    table = Table(Column("item", overflow="fold"), "label", "rather", "suspicion")
    label_names = found.dataset.label_names
    for place in listed[:NAMED]:
        item = found.items[place]
        label = str(label_names[found.dataset.labels[item]])
        rather = str(label_names[int(found.suspicion.suggested[place, 0])])
        suspicion = f"{float(found.suspicion.suspicion[place]):.2f}"
        table.add_row(Text(names[item]), Text(label), Text(rather), suspicion)
    return table
