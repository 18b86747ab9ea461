"""Pairs of items in a table: which are known to be the same, or how much they are.

    first, second    names of two items, as `unseen data check` tells them (paths below the data's
                     folder), or row numbers from 0
    same             yes or no (1, 0, true, false): `relevance.pairs=FILE`
    grade            0 to 1: `relevance.grades=FILE`

Items that are the same must not be on two sides of a split: a data set with pairs has classes in
which two that hold such a pair are one.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unseen.core.contracts import Dataset, FloatArray, IntArray, annotations_of, item_ids_of
from unseen.core.relevance import joined_classes
from unseen.data.base import INCOMPLETE, flags
from unseen.data.images import table_file
from unseen.data.images.subset import ChosenItems

SAME, GRADE = "same", "grade"


def with_pairs(dataset: Dataset, file: str, column: str, least: float) -> Dataset:
    """The data set with the pairs of a file; column: `same` or `grade`; least: the grade from which
    on two items are the same."""
    pairs = read_pairs(dataset, Path(file), column)
    same = pairs[pairs[:, 2] >= least][:, :2].astype(np.int64)
    labels = joined_classes(dataset.labels, same)
    _, first = np.unique(labels, return_index=True)
    names = [str(dataset.label_names[dataset.labels[item]]) for item in first]
    changes: Any = {"pairs" if column == SAME else "grades": pairs, "validation_classes": None}
    joined = ChosenItems(
        dataset,
        np.arange(len(dataset)),
        labels,
        names,
        replace(annotations_of(dataset), **changes),
        dataset.fingerprint(),
        str(dataset.describe().get(INCOMPLETE, "")),
    )
    joined.official_test_classes = _tested(dataset, labels, file)
    return joined


def read_pairs(dataset: Dataset, file: Path, column: str) -> FloatArray:  # [P, 3]
    """Positions of two items, and the number beside them."""
    columns = table_file.read(file)
    lacking = [name for name in ("first", "second", column) if name not in columns]
    if lacking:
        raise ValueError(f"{file} has no column {lacking[0]}, it has {', '.join(columns)}")
    place = {name: index for index, name in enumerate(item_ids_of(dataset))}
    ends = [_positions(columns[name], place, file) for name in ("first", "second")]
    if column == SAME:
        values = flags(columns[column], column, str(file)).astype(np.float64)
    else:
        try:
            values = np.array(columns[column], dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"{file}: grade must be numbers from 0 to 1 ({error})") from error
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"{file}: {column} must lie in 0 to 1, got {values.min()}, {values.max()}")
    return np.stack([*(end.astype(np.float64) for end in ends), values], axis=1)


def _positions(names: list[str], place: dict[str, int], file: Path) -> IntArray:
    by_row = all(name.isdigit() for name in names) and names[0] not in place
    if by_row:
        place = {str(row): row for row in place.values()}
    absent = [name for name in names if name not in place]
    if absent:
        example = next(iter(place))
        raise ValueError(
            f"{file}: {len(absent)} items are not in the data, the first is {absent[0]!r}; an item "
            f"is called as {example!r}"
        )
    return np.array([place[name] for name in names], dtype=np.int64)


def _tested(dataset: Dataset, labels: IntArray, file: str) -> IntArray | None:
    official = dataset.official_test_classes
    if official is None:
        return None
    tested = np.isin(dataset.labels, official)
    both = np.intersect1d(labels[tested], labels[~tested])
    if len(both):
        raise ValueError(f"{file}: items that are the same are trained on and tested on")
    return np.unique(labels[tested])
