"""`unseen data shift`: splits of growing shift between training and test classes, as a table."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from unseen import config as configs
from unseen import find_data
from unseen.cli.terminal import console, display
from unseen.experiment.shift import make_ladder
from unseen.find_data import data_table


def shift(
    data: Annotated[str, typer.Argument(help="features (.npz), a folder, a table, a data set")],
    out: Annotated[Path, typer.Option(help="the .csv file to write")],
    settings: Annotated[
        list[str] | None, typer.Argument(help="key=value, e.g. backbone=resnet50 split_seed=1")
    ] = None,
) -> None:
    """Example: unseen data shift photos.npz --out ladder.csv

    Exchanges classes between the training and the test half by their mean features, then removes
    those between: nine splits, numbered by the Frechet distance of their training and test
    features. Pictures go through the backbone once, at its starting weights. `unseen train DATA
    protocol=shift shift.step=7 shift.table=ladder.csv` trains on one of them.
    """
    if out.suffix.lower() != ".csv":
        raise ValueError(f"--out must end in .csv, got {out}")
    asked = configs.make(configs.override({"data": data_table(data)}, settings or []))
    with display() as (_, watch):
        dataset = find_data.open_data(asked.data, watch.of("reading the data"), asked.strict)
        ladder = make_ladder(asked, dataset, out, watch)
    table = Table("step", "distance", "training classes", "test classes", "made by")
    for each in ladder.steps:
        sizes = (str(len(each.train)), str(len(each.test)))
        table.add_row(str(each.step), f"{each.distance:.4g}", *sizes, each.made_by)
    console.print(table)
    console.print(
        f"Frechet distances of {ladder.of}: {out}. Next: unseen train {shlex.quote(data)} "
        f"protocol=shift shift.step=7 shift.table={shlex.quote(str(out))}"
    )
