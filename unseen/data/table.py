"""`table`: your own images, listed in a CSV or Parquet file.

    path, label               required; relative paths are taken from the table's folder
    labels                    several labels of an image, red|round: two images are the same
                              where they share one; without `label` the first of them is the class
    level_1, level_2, ...     a hierarchy, the coarsest first; without `label` the last level is the
                              class, `label = "level_1"` takes another
    split                     train, test, and perhaps validation: no class in two of them (with
                              train and validation alone, validation is what is tested)
    is_query, is_gallery      which test images ask, which answer; `query = "role"` with `gallery
                              = "role"` reads both from one column of words
    sequence                  images of a group (a camera, a sequence) do not answer each other
    x_1, y_1, x_2, y_2        the part of the image that counts: left, top, right, bottom; or
                              x, y, w, h; or all four in `bbox`
    any other                 kept as a further label, to evaluate by (`relevance.by`)

Only the first two must be there; every name can be changed, and `none` leaves a column out; with
`label = "none"` each image is a class of its own, until pairs say more (`relevance.pairs`). This
is the format of OpenMetricLearning; `unseen data table` writes such a file from any data set of
image files.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Any

from unseen.core import uris
from unseen.core.contracts import Progress
from unseen.core.files import UnreadableImageError
from unseen.core.uris import Place
from unseen.data.base import Columns, described, first_labels, level_columns, nested_levels
from unseen.data.containers import locations
from unseen.data.images import table_file
from unseen.data.images.boxes import COLUMNS, boxes_of
from unseen.data.images.image_files import ImageFiles, unreadable

_WORDS = {"query": ("query", "both"), "gallery": ("gallery", "both")}
SETS = "labels"  # the column of sets of labels


class Listed(ImageFiles):
    """A base to build on: images with columns of text. root: the file. path ... group: the names
    of its columns. strict: an unreadable image is an error, not a note."""

    at_uris = True
    has_rows = False  # which people know by their numbers

    def __init__(
        self,
        root: str | Path,
        path: str = "path",
        label: str | None = "label",
        split: str | None = "split",
        query: str | None = "is_query",
        gallery: str | None = "is_gallery",
        group: str | None = "sequence",
        *,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        file = uris.as_place(root)
        columns, notes = self.read(file)
        names = {"path": path, "label": label, "split": split, "query": query}
        names |= {"gallery": gallery, "group": group}
        _refuse_unknown(names, columns, file)
        folder = self.folder(file, columns[path][0])
        first = table_file.first_row(file)
        paths = locations.rows_of(file, columns[path], folder, first)
        skipped = unreadable(folder, list(dict.fromkeys(paths)), progress)
        if self.has_rows:
            rows_of: dict[Any, int] = {place: row for row, place in enumerate(paths, start=first)}
            skipped = [
                UnreadableImageError(e.path, f"row {rows_of[e.path]}: {e.reason}") for e in skipped
            ]
        if strict and skipped:
            raise skipped[0]
        damaged = {error.path for error in skipped}
        rows = [row for row, place in enumerate(paths) if place not in damaged]
        lost = [row for row, place in enumerate(paths) if place in damaged]
        if not rows:
            raise ValueError(
                f"none of the {len(paths)} images of {file} can be read; the first: "
                f"{skipped[0].line}"
            )
        columns |= nested_levels({name: columns[name] for name in level_columns(columns)})
        lost_labels = _labels(names, _rows(columns, lost), file) if lost else []
        columns = _rows(columns, rows)
        boxes = boxes_of(columns, file)
        metadata = described(_columns(names, columns, boxes is not None, file), str(file))
        name = Path(uris.name_of(file)).stem
        super().__init__(folder, name, [paths[row] for row in rows], metadata)
        self.skipped, self.boxes, self.notes = skipped, boxes, notes
        labels: dict[Any, str] = dict(zip((paths[row] for row in lost), lost_labels, strict=True))
        self.skipped_labels = [labels[error.path] for error in skipped]

    def folder(self, file: Place, first: str) -> Place:
        """Where paths begin; `first` is one of them."""
        return uris.parent(file)

    @abstractmethod
    def read(self, file: Place) -> tuple[table_file.Columns, list[str]]:
        """Every column, places of images among them; and what there is to say of them."""


class Table(Listed):
    """Images that a table lists: CSV, TSV or Parquet, a row an image.

    Args:
        root: The table.
        path: The column of the images' files.
        label: The column of classes; None: every image is its own.
        split: The column that says train, validation or test.
        query: The column that says which test images ask.
        gallery: The column that says which test images are searched.
        group: The column of groups: a query does not find images of its own.
        strict: An unreadable image is an error, not a note.
        progress: Called with the images looked at and their number.

    Example:
        >>> from unseen.data import Table
        >>> Table("images.csv").label_names  # doctest: +SKIP
    """

    has_rows = True

    def read(self, file: Place) -> tuple[table_file.Columns, list[str]]:
        return table_file.read(file), []

    @classmethod
    def recognises(cls, root: Place) -> bool:
        return uris.suffix(root) in table_file.SUFFIXES


def _refuse_unknown(names: dict[str, str | None], columns: table_file.Columns, file: Place) -> None:
    """Columns that were named must be there; those with their usual names need not."""
    usual = {"split": "split", "query": "is_query", "gallery": "is_gallery", "group": "sequence"}
    if SETS in columns or level_columns(columns):
        usual["label"] = "label"
    for role, name in names.items():
        if name is not None and name not in columns and usual.get(role) != name:
            raise ValueError(
                f"{file} has no column {name!r} for {role}, it has {', '.join(columns)}; name it "
                f"with data.{role}=COLUMN"
            )


def _columns(
    names: dict[str, str | None], columns: table_file.Columns, boxed: bool, file: Place
) -> Columns:
    def column(role: str) -> list[str] | None:
        return columns.get(names[role] or "")

    roles: dict[str, list[str] | None] = {role: column(role) for role in _WORDS}
    if names["query"] is not None and names["query"] == names["gallery"]:
        words = [word.lower() for word in columns.get(names["query"], [])]
        roles = {role: [str(w in known) for w in words] for role, known in _WORDS.items()}
    used = {*names.values(), *(COLUMNS if boxed else ()), SETS}
    levels = level_columns(columns)
    return Columns(
        _labels(names, columns, file),
        split=column("split"),
        query=roles["query"],
        gallery=roles["gallery"],
        groups=column("group"),
        more={name: columns[name] for name in columns if name not in used or name in levels},
        levels=levels,
        label_sets=columns.get(SETS) if names["label"] != SETS else None,
    )


def _rows(columns: table_file.Columns, rows: list[int]) -> table_file.Columns:
    return {name: [values[row] for row in rows] for name, values in columns.items()}


def _labels(names: dict[str, str | None], columns: table_file.Columns, file: Place) -> list[str]:
    """The class of each image: its column, the first of its labels, its last level, itself."""
    if names["label"] is None:
        return columns[names["path"] or ""]
    if names["label"] in columns:
        return columns[names["label"]]
    return (
        first_labels(columns[SETS], str(file))
        if SETS in columns
        else columns[level_columns(columns)[-1]]
    )
