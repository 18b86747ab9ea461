"""`unseen data shift`: splits of growing shift between training and test classes, as a table."""

import shlex

from rich.table import Table

from unseen.cli.options import Data, OutFile, Settings
from unseen.cli.terminal import console, display
from unseen.config import find_data
from unseen.config import schema as configs
from unseen.config.find_data import data_table
from unseen.runs.shift_table import make_shift_splits


def shift(
    data: Data,
    out: OutFile,
    settings: Settings = None,
) -> None:
    """Example: unseen data shift photos.npz --out stages.csv

    Exchanges classes between the training and the test half by their mean features, then removes
    those between: nine splits, numbered by the Frechet distance of their training and test
    features. Images go through the backbone once, at its starting weights. `unseen train DATA
    protocol=shift shift.step=7 shift.table=stages.csv` trains on one of them.
    """
    if out.suffix.lower() != ".csv":
        raise ValueError(f"--out must end in .csv, got {out}")
    request = configs.make(configs.override({"data": data_table(data)}, settings or []))
    with display() as (_, callbacks):
        dataset = find_data.open_data(
            request.data, callbacks.of("reading the data"), request.data.strict
        )
        stages = make_shift_splits(request, dataset, out, callbacks)
    table = Table("step", "distance", "training classes", "test classes", "made by")
    for each in stages.steps:
        sizes = (str(len(each.train)), str(len(each.test)))
        table.add_row(str(each.step), f"{each.distance:.4g}", *sizes, each.made_by)
    console.print(table)
    console.print(
        f"Frechet distances of {stages.of}: {out}. Next: unseen train {shlex.quote(data)} "
        f"protocol=shift shift.step=7 shift.table={shlex.quote(str(out))}"
    )
