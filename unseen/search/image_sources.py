"""Which images a user's words mean: files, folders, tables, tars, Parquet and Arrow files, COCO's
boxes, here or at an address; each with its label, if somebody says so."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from unseen.core import uris
from unseen.core.contracts import IntArray
from unseen.core.files import is_text, shown
from unseen.core.names import near_path
from unseen.core.uris import Place
from unseen.data.base import HUB, level_columns
from unseen.data.coco import Coco, images_of
from unseen.data.coco import rows as coco_rows
from unseen.data.containers import locations
from unseen.data.containers.contained import LABEL, HuggingFace, Parquet, Webdataset, listing
from unseen.data.folder import class_of, labels_in
from unseen.data.images import table_file
from unseen.data.images.boxes import boxes_of, mark
from unseen.data.images.decode import Box
from unseen.data.images.exif import OF_FILE
from unseen.data.images.image_files import folders_of
from unseen.data.images.table_file import EDGES
from unseen.data.table import SETS
from unseen.runs.trained_run import BoxedImage, Trained
from unseen.search.segment import Metadata, Value

_CONTAINED = (Webdataset, Parquet, HuggingFace)
_NO_PATH = "*{"  # of patterns

Rule = Callable[[tuple[str, ...]], str | None]  # folders above an image -> its class


@dataclass(frozen=True)
class Source:
    """An image or a part of it, its label if somebody says so, and what else a table says of it."""

    path: Place
    label: str | None = None
    box: Box | None = None  # the part of the image that counts
    columns: Mapping[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As `Metadata.name`."""
        return str(self.path) + mark(self.box)

    @property
    def image(self) -> Place | BoxedImage:
        return self.path if self.box is None else BoxedImage(self.path, self.box)


def source_of(metadata: Metadata) -> Source:
    """Where an image of an index came from."""
    columns = {n: v for n, v in metadata.columns.items() if not n.startswith(OF_FILE)}
    return Source(locations.of_index(metadata.path), metadata.label, metadata.box, columns)


def class_rule(model: Trained, levels: int | None = None) -> partial[str | None]:
    """How folders give classes: as `levels` says, or as the data the run was trained on."""
    data = model.config.data
    rule = data.values if data.name == "folder" else {}
    rule = rule if levels is None else {"levels": levels}
    level = rule.get("class_level") or 0
    return partial(class_of, levels=rule.get("levels", 0), class_level=level)


def find(
    words: Sequence[Place], label: str | None = None, by_folder: bool = True, rule: Rule = class_of
) -> list[Source]:
    """Image files, those in folders, and those a table or a container lists, perhaps with boxes.
    `label`: of all of them; otherwise tables and class folders tell, the latter by the `rule`,
    unless `by_folder` is off."""
    if label is not None and not is_text(label):
        raise ValueError(f"label must be UTF-8 text, got {shown(label)}")
    result: dict[str, Source] = {}
    for word in words:
        for source in _meant(_present(uris.as_place(word)), by_folder, rule):
            result.setdefault(source.name, replace(source, label=label or source.label))
    if not result:
        raise ValueError(f"no images in {', '.join(map(str, words))}")
    return list(result.values())


def _present(place: Place) -> Place:
    """The same in full; what is not there is an error."""
    text = str(place)
    if isinstance(place, str) or text.startswith(HUB):
        return place
    if not place.exists() and not any(sign in text for sign in _NO_PATH):
        raise FileNotFoundError(f"no such file or folder: {place}{near_path(place)}")
    return place.resolve()


def _meant(root: Place, by_folder: bool, rule: Rule) -> Iterable[Source]:
    for kind in _CONTAINED:
        if kind.recognises(root):
            return _listed(listing(kind.files(root))[0], root)
    if Coco.recognises(root):
        columns = coco_rows(root)[0]
        return _listed(columns, root, images_of(root, columns["path"][0]))
    if uris.suffix(root) in table_file.SUFFIXES:
        return _listed(table_file.read(root), root)
    if isinstance(root, Path) and not root.is_dir():
        return [Source(root)]
    return (
        Source(path, label if by_folder else None, columns=_levels(folders_of(path, root)))
        for path, label in labels_in(root, rule).items()
    )


def _levels(folders: Sequence[str]) -> dict[str, Value]:
    return {f"level_{number}": name for number, name in enumerate(folders, start=1)}


def _listed(
    columns: table_file.Columns, table: Place, folder: Place | None = None
) -> Iterable[Source]:
    """The rows of a table: `path`, and perhaps a box and what the image is called: its `label`,
    its `labels`, or its last level."""
    if "path" not in columns:
        raise ValueError(f"{table} has no column path, it has {', '.join(columns)}")
    called = [name for name in (LABEL, SETS, *level_columns(columns)[-1:]) if name in columns]
    labels: Sequence[str | None] = columns[called[0]] if called else [None] * len(columns["path"])
    boxes = boxes_of(columns, table)
    paths = locations.rows_of(table, columns["path"], folder, table_file.first_row(table))
    others = _others(columns, {"path", *called[:1], *EDGES}, table)
    for row, (path, label) in enumerate(zip(paths, labels, strict=True)):
        whole = path.resolve() if isinstance(path, Path) else path
        more = {name: column[row] for name, column in others.items() if column[row] != ""}
        yield Source(whole, label or None, _box(boxes, row), more)


def _others(
    columns: table_file.Columns, used: Collection[str], table: Place
) -> dict[str, Sequence[Value]]:
    """Columns that filters can ask for: numbers where all of a column are."""
    others = {name: column for name, column in columns.items() if name not in used}
    if len({name.lower() for name in others}) < len(others):
        raise ValueError(f"{table}: names of columns must differ in more than upper case")
    return {name: _numbers(column) for name, column in others.items()}


def _numbers(column: Sequence[str]) -> Sequence[Value]:
    known = [text for text in column if text != ""]
    if any(text.lstrip("+-")[:1] == "0" and text.lstrip("+-")[1:2].isdigit() for text in known):
        return column  # 00501 is a name
    for kind in (int, float):
        try:
            made = ["" if text == "" else kind(text) for text in column]
        except ValueError:
            continue
        return made if all(value == "" or math.isfinite(float(value)) for value in made) else column
    return column


def _box(boxes: IntArray | None, row: int) -> Box | None:
    if boxes is None or boxes[row, 2] < 0:
        return None
    left, top, right, bottom = boxes[row].clip(min=0).tolist()
    return left, top, right, bottom
