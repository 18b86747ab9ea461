"""A data set of picture files as a table: the format of OpenMetricLearning, which `table` reads."""

import os
from pathlib import Path

import numpy as np

from unseen.addresses import Place
from unseen.contracts import IntArray
from unseen.data.base import set_words
from unseen.data.containers.places import seen_from
from unseen.data.pictures import table_file
from unseen.data.pictures.files import PictureFiles
from unseen.data.pictures.table_file import EDGES


def write_table(dataset: PictureFiles, file: Path, test_classes: IntArray | None = None) -> None:
    """Paths are written relative to the table; official test classes (or those given) are its
    `validation`, as OpenMetricLearning calls what is tested."""
    tested = np.isin(dataset.labels, _tested(dataset, test_classes))
    annotations = dataset.annotations
    none = np.empty(0, dtype=np.int64)
    own = none if annotations.validation_classes is None else annotations.validation_classes
    validated = np.isin(dataset.labels, own)
    # with validation classes of its own, the tested ones must keep their name
    word = "test" if validated.any() else "validation"
    everyone = np.ones(len(dataset), dtype=bool)
    folder = file.parent.resolve()
    places = [_seen_from(dataset.path(i), folder) for i in range(len(dataset))]
    columns: dict[str, list[str]] = {
        "label": [dataset.label_names[label] for label in dataset.labels],
        "path": places,
        "split": np.where(tested, word, np.where(validated, "validation", "train")).tolist(),
    }
    for name, flags in (("is_query", annotations.query), ("is_gallery", annotations.gallery)):
        marks = np.where(everyone if flags is None else flags, "True", "False")
        columns[name] = np.where(tested, marks, "").tolist()
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
    table_file.write(file, columns)


def _seen_from(place: Place, folder: Path) -> str:
    if isinstance(place, str):  # an address, or an item of a container
        return seen_from(place, folder)
    return Path(os.path.relpath(place.resolve(), folder)).as_posix()


def _tested(dataset: PictureFiles, given: IntArray | None) -> IntArray:
    tested = dataset.official_test_classes if given is None else given
    if tested is None:
        raise ValueError(f"{dataset.name} has no official test classes: say which are to be tested")
    return tested
