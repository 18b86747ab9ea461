"""`unseen data table`: a data set of picture files as a table."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from unseen import config as configs
from unseen.cli.terminal import console, display
from unseen.data.pictures.files import PictureFiles
from unseen.data.pictures.write_table import write_table
from unseen.experiment.run_context import prepare
from unseen.find_data import data_table


def table(
    data: Annotated[str, typer.Argument(help="a folder of class folders, a benchmark, a table")],
    out: Annotated[Path, typer.Option(help="the .csv or .parquet file to write")],
    settings: Annotated[list[str] | None, typer.Argument(help="key=value, e.g. seed=1")] = None,
) -> None:
    """Example: unseen data table photos/ --out photos.csv

    Writes path, label, split, queries, gallery and further labels of every picture, in the format
    of OpenMetricLearning; `unseen train photos.csv` reads it. Classes are split as `train` does.
    """
    asked = configs.make(configs.override({"data": data_table(data)}, settings or []))
    with display() as (_, watch):
        context = prepare(asked, watch)
    dataset: object = context.dataset
    if not isinstance(dataset, PictureFiles):
        raise ValueError(f"{context.dataset.name} is no data set of picture files")
    tested = context.dataset.labels[context.split.test]
    write_table(dataset, out, tested)
    then = f"unseen train {shlex.quote(str(out))}"
    console.print(f"{len(dataset):,} pictures: {out}. Next: {then}")
