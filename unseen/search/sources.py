"""Which pictures a user's words mean: files, folders, tables, tars, Parquet and Arrow files, COCO's
boxes, here or at an address; each with its label, if somebody says so."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unseen import addresses
from unseen.addresses import Place
from unseen.contracts import IntArray
from unseen.data.base import HUB, level_columns
from unseen.data.coco import Coco, pictures_of
from unseen.data.coco import rows as coco_rows
from unseen.data.containers import places
from unseen.data.containers.contained import LABEL, listing
from unseen.data.hugging_face import HuggingFace
from unseen.data.parquet import Parquet
from unseen.data.pictures import table_file
from unseen.data.pictures.boxes import boxes_of, mark
from unseen.data.pictures.decode import Box
from unseen.data.pictures.files import folders_of, pictures_at
from unseen.data.table import SETS
from unseen.data.webdataset import Webdataset
from unseen.experiment.trained import BoxedPicture
from unseen.names import near_path
from unseen.search.segment import Facts

_CONTAINED = (Webdataset, Parquet, HuggingFace)
_NO_PATH = "*{"  # of patterns


@dataclass(frozen=True)
class Source:
    """A picture or a part of it, and its label if somebody says so."""

    path: Place
    label: str | None = None
    box: Box | None = None  # the part of the picture that counts

    @property
    def name(self) -> str:
        """As `Facts.name`."""
        return str(self.path) + mark(self.box)

    @property
    def picture(self) -> Place | BoxedPicture:
        return self.path if self.box is None else BoxedPicture(self.path, self.box)


def source_of(facts: Facts) -> Source:
    """Where a picture of an index came from."""
    path = facts.path if places.is_elsewhere(facts.path) else Path(facts.path)
    return Source(path, facts.label, facts.box)


def find(words: Sequence[Place], label: str | None = None, by_folder: bool = True) -> list[Source]:
    """Picture files, those in folders, and those a table or a container lists, perhaps with boxes.
    `label`: of all of them; otherwise tables and class folders tell, the latter unless `by_folder`
    is off."""
    found: dict[str, Source] = {}
    for word in words:
        for source in _meant(_present(addresses.as_place(word)), by_folder):
            found.setdefault(source.name, replace(source, label=label or source.label))
    if not found:
        raise ValueError(f"no pictures in {', '.join(map(str, words))}")
    return list(found.values())


def _present(place: Place) -> Place:
    """The same in full; what is not there is an error."""
    text = str(place)
    if isinstance(place, str) or text.startswith(HUB):
        return place
    if not place.exists() and not any(sign in text for sign in _NO_PATH):
        raise FileNotFoundError(f"no such file or folder: {place}{near_path(place)}")
    return place.resolve()


def _meant(root: Place, by_folder: bool) -> Iterable[Source]:
    for kind in _CONTAINED:
        if kind.recognises(root):
            return _listed(listing(kind.files(root))[0], root)
    if Coco.recognises(root):
        held = coco_rows(root)[0]
        return _listed(held, root, pictures_of(root, held["path"][0]))
    if addresses.suffix(root) in table_file.SUFFIXES:
        return _listed(table_file.read(root), root)
    if isinstance(root, Path) and not root.is_dir():
        return [Source(root)]
    return (
        Source(path, next(iter(folders_of(path, root)), None) if by_folder else None)
        for path in pictures_at(root)
    )


def _listed(
    held: table_file.Columns, table: Place, folder: Place | None = None
) -> Iterable[Source]:
    """The rows of a table: `path`, and perhaps a box and what the picture is called: its `label`,
    its `labels`, or its last level."""
    if "path" not in held:
        raise ValueError(f"{table} has no column path, it has {', '.join(held)}")
    called = [name for name in (LABEL, SETS, *level_columns(held)[-1:]) if name in held]
    labels: Sequence[str | None] = held[called[0]] if called else [None] * len(held["path"])
    boxes = boxes_of(held, table)
    above = addresses.parent(table) if folder is None else folder
    for row, (name, label) in enumerate(zip(held["path"], labels, strict=True)):
        path = places.beside(above, name)
        path = path.resolve() if isinstance(path, Path) else path
        yield Source(path, label or None, _box(boxes, row))


def _box(boxes: IntArray | None, row: int) -> Box | None:
    if boxes is None or boxes[row, 2] < 0:
        return None
    left, top, right, bottom = boxes[row].clip(min=0).tolist()
    return left, top, right, bottom
