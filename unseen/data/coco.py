"""`coco`: images and boxes in COCO's JSON: `annotations/instances_val.json`.

A category is a class, a box is an image: its pixels alone are seen. A box as large as its image
is the image. Groups (`iscrowd`) and boxes without a pixel are left out. `supercategory` is a
further label. Images are looked for beside the file, in `images`, and in the folder that has the
last word of the file's name (`../val`), or where `data.images=FOLDER` says.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unseen.core import uris
from unseen.core.contracts import Progress
from unseen.core.uris import Place
from unseen.data.images.table_file import EDGES, Columns
from unseen.data.table import Listed

_KEYS = ("images", "annotations", "categories")
_ABOVE = "supercategory"
_SNIFFED = 1 << 16  # bytes of a file that is recognised


class Coco(Listed):
    """Boxes of images, one class per category.

    Args:
        root: the JSON file.
        images: the folder of the images; None: where they usually lie.
        strict: an unreadable image is an error, not a note.
        progress: called with the images looked at and their number.

    Example:
        >>> from unseen.data import Coco
        >>> Coco("annotations.json").boxes  # doctest: +SKIP
    """

    def __init__(
        self,
        root: str | Path,
        images: str | None = None,
        *,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._images = images
        super().__init__(root, strict=strict, progress=progress)

    def read(self, file: Place) -> tuple[Columns, list[str]]:
        columns, left_out = rows(file)
        for name in (_ABOVE, *EDGES):
            if not any(columns[name]):
                del columns[name]
        return columns, [f"left out, groups and empty boxes: {left_out:,}"] if left_out else []

    def folder(self, file: Place, first: str) -> Place:
        return images_of(file, first, self._images)

    @classmethod
    def recognises(cls, root: Place) -> bool:
        if uris.suffix(root) != ".json" or not uris.exists(root):
            return False
        head = uris.read(root, 0, _SNIFFED)
        return head.lstrip()[:1] == b"{" and any(f'"{key}"'.encode() in head for key in _KEYS)


def rows(file: Place) -> tuple[Columns, int]:
    """A row for each box: path, label, supercategory and edges; and how many were left out."""
    try:
        content = json.loads(uris.read(file))
        images = {image["id"]: image for image in content["images"]}
        kinds = {kind["id"]: kind for kind in content["categories"]}
        result = list(_rows(content["annotations"], images, kinds))
    except RecursionError as error:
        raise ValueError(f"{file} is no COCO file of boxes: it is nested too deeply") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is no COCO file of boxes: {error!r}") from error
    if not result:
        raise ValueError(f"{file} has no boxes")
    names = ("path", "label", _ABOVE, *EDGES)
    columns = {name: [row[place] for row in result] for place, name in enumerate(names)}
    return columns, len(content["annotations"]) - len(result)


def _rows(
    boxes: list[dict[str, Any]], images: dict[Any, Any], kinds: dict[Any, Any]
) -> Iterator[tuple[str, ...]]:
    for box in boxes:
        left, top, width, height = (float(number) for number in box["bbox"])
        right, bottom = round(left + width), round(top + height)
        left, top = max(0, round(left)), max(0, round(top))
        if box.get("iscrowd") or right <= left or bottom <= top:
            continue
        image, kind = images[box["image_id"]], kinds[box["category_id"]]
        across, down = image.get("width"), image.get("height")
        known = across is not None and down is not None
        whole = known and not (left or top) and right >= across and bottom >= down
        edges = ("",) * 4 if whole else (str(left), str(top), str(right), str(bottom))
        yield (image["file_name"], str(kind["name"]), str(kind.get(_ABOVE, "")), *edges)


def images_of(file: Place, first: str, wanted: str | None = None) -> Place:
    """The folder of the images, by the first of them."""
    here = uris.parent(file)
    if wanted is not None:
        return uris.as_place(wanted)
    last = Path(uris.name_of(file)).stem.replace("-", "_").rpartition("_")[2]
    above = uris.parent(here)
    tried = [here, uris.inside(here, "images"), above, uris.inside(above, "images")]
    tried += [uris.inside(here, last), uris.inside(above, last)]
    for folder in tried:
        if uris.exists(uris.inside(folder, first)):
            return folder
    raise FileNotFoundError(
        f"{first} of {file} is in none of {', '.join(map(str, tried))}: data.images=FOLDER"
    )
