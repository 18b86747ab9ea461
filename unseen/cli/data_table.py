"""`unseen data table`: a data set of image files as a table."""

import shlex

from unseen.cli.options import Data, OutFile, Settings
from unseen.cli.terminal import console, display
from unseen.config import schema as configs
from unseen.config.find_data import data_table
from unseen.data.images.image_files import ImageFiles
from unseen.data.images.write_table import write_table
from unseen.runs.prepare import prepare


def table(
    data: Data,
    out: OutFile,
    settings: Settings = None,
) -> None:
    """Example: unseen data table photos/ --out photos.csv

    Writes path, label, split, queries, gallery and further labels of every image, in the format
    of OpenMetricLearning; `unseen train photos.csv` reads it. Classes are split as `train` does.
    """
    request = configs.make(configs.override({"data": data_table(data)}, settings or []))
    with display() as (_, callbacks):
        context = prepare(request, callbacks)
    dataset: object = context.dataset
    if not isinstance(dataset, ImageFiles):
        raise ValueError(f"{context.dataset.name} is no data set of image files")
    tested = context.dataset.labels[context.split.test]
    write_table(dataset, out, tested)
    then = f"unseen train {shlex.quote(str(out))}"
    console.print(f"{len(dataset):,} images: {out}. Next: {then}")
