"""`table`: your own pictures, listed in a CSV or Parquet file.

    path, label               required; relative paths are taken from the table's folder
    labels                    several labels of a picture, red|round: two pictures are the same
                              where they share one; without `label` the first of them is the class
    level_1, level_2, ...     a hierarchy, the coarsest first; without `label` the last level is the
                              class, `label = "level_1"` takes another
    split                     train, test, and perhaps validation: no class in two of them (with
                              train and validation alone, validation is what is tested)
    is_query, is_gallery      which test pictures ask, which answer; `query = "role"` with `gallery
                              = "role"` reads both from one column of words
    sequence                  pictures of a group (a camera, a sequence) do not answer each other
    x_1, y_1, x_2, y_2        the part of the picture that counts: left, top, right, bottom; or
                              x, y, w, h; or all four in `bbox`
    any other                 kept as a further label, to judge by (`relevance.by`)

Only the first two must be there; every name can be changed, and `none` leaves a column out; with
`label = "none"` each picture is a class of its own, until pairs say more (`relevance.pairs`). This
is the format of OpenMetricLearning; `unseen data table` writes such a file from any data set of
picture files.
"""

from abc import abstractmethod
from pathlib import Path

from unseen import addresses
from unseen.addresses import Place
from unseen.contracts import Progress
from unseen.data.base import Columns, described, first_labels, level_columns, nested_levels
from unseen.data.containers import places
from unseen.data.pictures import table_file
from unseen.data.pictures.boxes import COLUMNS, boxes_of
from unseen.data.pictures.files import PictureFiles, unreadable

_WORDS = {"query": ("query", "both"), "gallery": ("gallery", "both")}
SETS = "labels"  # the column of sets of labels


class Listed(PictureFiles):
    """A base to build on: pictures with columns of text. root: the file. path ... group: the names
    of its columns. strict: an unreadable picture is an error, not a note."""

    at_addresses = True

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
        file = addresses.as_place(root)
        held, notes = self.read(file)
        names = {"path": path, "label": label, "split": split, "query": query}
        names |= {"gallery": gallery, "group": group}
        _refuse_unknown(names, held, file)
        folder = addresses.parent(file)
        paths = [places.beside(folder, place) for place in held[path]]
        skipped = unreadable(folder, paths, progress)
        if strict and skipped:
            raise skipped[0]
        if len(skipped) == len(paths):
            raise ValueError(
                f"none of the {len(paths)} pictures of {file} can be read; the first: "
                f"{skipped[0].line}"
            )
        damaged = {error.path for error in skipped}
        rows = [row for row, place in enumerate(paths) if place not in damaged]
        held = {name: [values[row] for row in rows] for name, values in held.items()}
        boxes = boxes_of(held, file)
        facts = described(_columns(names, held, boxes is not None, file), str(file))
        name = Path(addresses.name_of(file)).stem
        super().__init__(folder, name, [paths[row] for row in rows], facts)
        self.skipped, self.boxes, self.notes = skipped, boxes, notes

    @abstractmethod
    def read(self, file: Place) -> tuple[table_file.Columns, list[str]]:
        """Every column, places of pictures among them; and what there is to say of them."""


class Table(Listed):
    """root: the file. path ... group: the names of its columns. strict: an unreadable picture is
    an error, not a note."""

    def read(self, file: Place) -> tuple[table_file.Columns, list[str]]:
        return table_file.read(file), []

    @classmethod
    def recognises(cls, root: Place) -> bool:
        return addresses.suffix(root) in table_file.SUFFIXES


def _refuse_unknown(names: dict[str, str | None], held: table_file.Columns, file: Place) -> None:
    """Columns that were named must be there; those with their usual names need not."""
    usual = {"split": "split", "query": "is_query", "gallery": "is_gallery", "group": "sequence"}
    if SETS in held or level_columns(held):
        usual["label"] = "label"
    for role, name in names.items():
        if name is not None and name not in held and usual.get(role) != name:
            raise ValueError(
                f"{file} has no column {name!r} for {role}, it has {', '.join(held)}; name it "
                f"with data.{role}=COLUMN"
            )


def _columns(
    names: dict[str, str | None], held: table_file.Columns, boxed: bool, file: Place
) -> Columns:
    def column(role: str) -> list[str] | None:
        return held.get(names[role] or "")

    asked: dict[str, list[str] | None] = {role: column(role) for role in _WORDS}
    if names["query"] is not None and names["query"] == names["gallery"]:
        words = [word.lower() for word in held.get(names["query"], [])]
        asked = {role: [str(w in known) for w in words] for role, known in _WORDS.items()}
    used = {*names.values(), *(COLUMNS if boxed else ()), SETS}
    levels = nested_levels({name: held[name] for name in level_columns(held)})
    return Columns(
        _labels(names, held | levels, file),
        split=column("split"),
        query=asked["query"],
        gallery=asked["gallery"],
        groups=column("group"),
        more={name: values for name, values in held.items() if name not in used} | levels,
        levels=list(levels),
        label_sets=held.get(SETS) if names["label"] != SETS else None,
    )


def _labels(names: dict[str, str | None], held: table_file.Columns, file: Place) -> list[str]:
    """The class of each picture: its column, the first of its labels, its last level, itself."""
    if names["label"] is None:
        return held[names["path"] or ""]
    if names["label"] in held:
        return held[names["label"]]
    return first_labels(held[SETS], str(file)) if SETS in held else held[level_columns(held)[-1]]
