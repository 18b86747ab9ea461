"""A data set of image files as a table: the format of OpenMetricLearning, which `table` reads."""

import os
from pathlib import Path

import numpy as np

from unseen.core.contracts import BoolArray, IntArray
from unseen.core.uris import Place
from unseen.data.base import set_words
from unseen.data.containers.locations import seen_from
from unseen.data.images import table_file
from unseen.data.images.image_files import ImageFiles
from unseen.data.images.table_file import EDGES


def write_table(dataset: ImageFiles, file: Path, test_classes: IntArray | None = None) -> None:
    """Paths are written relative to the table; official test classes (or those given) are its
    `validation`, as OpenMetricLearning calls what is tested."""
    folder = file.parent.resolve()
    table_file.write(file, table_columns(dataset, _tested(dataset, test_classes), folder))


def table_columns(
    dataset: ImageFiles, test_classes: IntArray | None, folder: Path | None = None
) -> table_file.Columns:
    """The columns of such a table; without test classes it says nothing of a split. folder: where
    paths begin; None: they are whole."""
    annotations = dataset.annotations
    columns: table_file.Columns = {
        "label": [dataset.label_names[label] for label in dataset.labels],
        "path": [_seen_from(dataset.path(i), folder) for i in range(len(dataset))],
    }
    if test_classes is not None:
        columns |= _parts(dataset, np.isin(dataset.labels, test_classes))
    for name, codes in annotations.labels.items():
        columns[name] = [annotations.label_names[name][code] for code in codes]
    if annotations.label_sets is not None:
        columns["labels"] = set_words(annotations.label_sets, annotations.set_names)
    if annotations.ignore_groups is not None:
        names = [*dataset.group_names, ""]  # -1, no group, is the last
        columns["sequence"] = [names[group] for group in annotations.ignore_groups]
    if dataset.boxes is not None:
        whole = dataset.boxes[:, 2] < 0
        for place, edge in enumerate(EDGES):
            columns[edge] = np.where(whole, "", dataset.boxes[:, place].astype(str)).tolist()
    return columns


def _parts(dataset: ImageFiles, tested: BoolArray) -> table_file.Columns:
    """Which part each image is in, and whether it asks and answers there."""
    annotations = dataset.annotations
    none = np.empty(0, dtype=np.int64)
    own = none if annotations.validation_classes is None else annotations.validation_classes
    validated = np.isin(dataset.labels, own)
    # with validation classes of its own, the tested ones must keep their name
    word = "test" if validated.any() else "validation"
    everyone = np.ones(len(dataset), dtype=bool)
    columns = {"split": np.where(tested, word, np.where(validated, "validation", "train")).tolist()}
    for name, flags in (("is_query", annotations.query), ("is_gallery", annotations.gallery)):
        marks = np.where(everyone if flags is None else flags, "True", "False")
        columns[name] = np.where(tested, marks, "").tolist()
    return columns


def _seen_from(place: Place, folder: Path | None) -> str:
    if isinstance(place, str):  # an address, or an item of a container
        return place if folder is None else seen_from(place, folder)
    whole = place.resolve()
    return (whole if folder is None else Path(os.path.relpath(whole, folder))).as_posix()


def _tested(dataset: ImageFiles, test_classes: IntArray | None) -> IntArray:
    tested = dataset.official_test_classes if test_classes is None else test_classes
    if tested is None:
        raise ValueError(f"{dataset.name} has no official test classes: say which are to be tested")
    return tested
