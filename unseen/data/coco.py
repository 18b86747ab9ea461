"""`coco`: pictures and boxes in COCO's JSON: `annotations/instances_val.json`.

A category is a class, a box is a picture: its pixels alone are seen. A box as large as its picture
is the picture. Groups (`iscrowd`) and boxes without a pixel are left out. `supercategory` is a
further label. Pictures are looked for beside the file, in `images`, and in the folder that has the
last word of the file's name (`../val`), or where `data.images=FOLDER` says.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unseen import addresses
from unseen.addresses import Place
from unseen.contracts import Progress
from unseen.data.base import Columns, described
from unseen.data.pictures.boxes import boxes_of
from unseen.data.pictures.files import PictureFiles, unreadable
from unseen.data.pictures.table_file import EDGES
from unseen.data.pictures.table_file import Columns as Held

_KEYS = ("images", "annotations", "categories")
_ABOVE = "supercategory"
_LOOKED_AT = 1 << 16  # bytes of a file that is recognised


class Coco(PictureFiles):
    """root: the JSON file. images: the folder of the pictures; None: where they usually lie.
    strict: an unreadable picture is an error, not a note."""

    at_addresses = True

    def __init__(
        self,
        root: str | Path,
        images: str | None = None,
        *,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        file = addresses.as_place(root)
        held, left_out = rows(file)
        folder = pictures_of(file, held["path"][0], images)
        places = [addresses.inside(folder, name) for name in held["path"]]
        skipped = unreadable(folder, list(dict.fromkeys(places)), progress)
        if strict and skipped:
            raise skipped[0]
        damaged = {error.path for error in skipped}
        kept = [row for row, place in enumerate(places) if place not in damaged]
        if not kept:
            raise ValueError(f"none of the pictures of {file} can be read: {skipped[0].line}")
        held = {name: [values[row] for row in kept] for name, values in held.items()}
        more = {_ABOVE: held[_ABOVE]} if any(held[_ABOVE]) else {}
        columns = Columns(held["label"], more=more)
        name = Path(addresses.name_of(file)).stem
        facts = described(columns, str(file))
        super().__init__(folder, name, [places[row] for row in kept], facts)
        self.boxes, self.skipped = boxes_of(held, file), skipped
        self.notes = [f"left out, groups and empty boxes: {left_out:,}"] if left_out else []

    @classmethod
    def recognises(cls, root: Place) -> bool:
        if addresses.suffix(root) != ".json" or not addresses.exists(root):
            return False
        head = addresses.read(root, 0, _LOOKED_AT)
        return head.lstrip()[:1] == b"{" and any(f'"{key}"'.encode() in head for key in _KEYS)


def rows(file: Place) -> tuple[Held, int]:
    """A row for each box: path, label, supercategory and edges; and how many were left out."""
    try:
        told = json.loads(addresses.read(file))
        pictures = {picture["id"]: picture for picture in told["images"]}
        kinds = {kind["id"]: kind for kind in told["categories"]}
        found = list(_rows(told["annotations"], pictures, kinds))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is no COCO file of boxes: {error!r}") from error
    if not found:
        raise ValueError(f"{file} has no boxes")
    names = ("path", "label", _ABOVE, *EDGES)
    columns = {name: [row[place] for row in found] for place, name in enumerate(names)}
    return columns, len(told["annotations"]) - len(found)


def _rows(
    boxes: list[dict[str, Any]], pictures: dict[Any, Any], kinds: dict[Any, Any]
) -> Iterator[tuple[str, ...]]:
    for box in boxes:
        left, top, width, height = (float(number) for number in box["bbox"])
        right, bottom = round(left + width), round(top + height)
        left, top = max(0, round(left)), max(0, round(top))
        if box.get("iscrowd") or right <= left or bottom <= top:
            continue
        picture, kind = pictures[box["image_id"]], kinds[box["category_id"]]
        across, down = picture.get("width"), picture.get("height")
        known = across is not None and down is not None
        whole = known and not (left or top) and right >= across and bottom >= down
        edges = ("",) * 4 if whole else (str(left), str(top), str(right), str(bottom))
        yield (picture["file_name"], str(kind["name"]), str(kind.get(_ABOVE, "")), *edges)


def pictures_of(file: Place, first: str, wanted: str | None = None) -> Place:
    """The folder of the pictures, by the first of them."""
    here = addresses.parent(file)
    if wanted is not None:
        return addresses.as_place(wanted)
    last = Path(addresses.name_of(file)).stem.replace("-", "_").rpartition("_")[2]
    above = addresses.parent(here)
    tried = [here, addresses.inside(here, "images"), above, addresses.inside(above, "images")]
    tried += [addresses.inside(here, last), addresses.inside(above, last)]
    for folder in tried:
        if addresses.exists(addresses.inside(folder, first)):
            return folder
    raise FileNotFoundError(
        f"{first} of {file} is in none of {', '.join(map(str, tried))}: data.images=FOLDER"
    )
