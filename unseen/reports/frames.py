"""Scores and training history of a run as pandas DataFrames."""

from typing import TYPE_CHECKING

from unseen.core.custom_components import short_name
from unseen.reports.stored_run import StoredRun
from unseen.training.loggers import numbers_of
from unseen.training.result import Result

if TYPE_CHECKING:
    import pandas


def scores(result: Result) -> "pandas.DataFrame":
    """A row for each descriptor that was evaluated (`trained`, `untrained`, ...), a column for each
    metric."""
    import pandas  # noqa: PLC0415 - half a second

    rows = {
        name: {short_name(metric): score.value for metric, score in row.metrics.items()}
        for name, row in result.scores.items()
    }
    return pandas.DataFrame.from_dict(rows, orient="index")


def history(run: StoredRun) -> "pandas.DataFrame":
    """A row for each epoch, under its number: loss, learning rate, speed, and the scores of those
    epochs that were validated."""
    import pandas  # noqa: PLC0415 - half a second

    rows = [{"epoch": epoch.epoch, **numbers_of(epoch)} for epoch in run.epochs]
    return pandas.DataFrame(rows, columns=None if rows else ["epoch"]).set_index("epoch")
