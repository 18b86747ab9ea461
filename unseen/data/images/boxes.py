"""The part of an image that counts: columns of a table, and the pixels inside.

    x_1, y_1, x_2, y_2           left, top, right, bottom
    x, y, w, h                   left, top, width, height (also `width`, `height`)
    bbox                         the same four in one cell, as COCO has them: "12 30 200 150" or
                                 "[12, 30, 200, 150]"

Numbers are pixels. An empty cell means the whole image; edges outside of it are moved inside.
"""

import re

import numpy as np

from unseen.core.contracts import IntArray
from unseen.core.uris import Place
from unseen.data.images.crops import Loaded
from unseen.data.images.decode import Box, SafeImageFile
from unseen.data.images.table_file import EDGES, Columns

_EXTENTS = (("x", "y", "w", "h"), ("x", "y", "width", "height"))
_CELL = "bbox"
COLUMNS = frozenset({*EDGES, _CELL, *(name for names in _EXTENTS for name in names)})


def boxes_of(columns: Columns, file: Place) -> IntArray | None:
    """[n, 4] left, top, right, bottom of a table's rows; -1 where a row names none; None: no row
    does."""
    words = _four_words(columns, file)
    if words is None:
        return None
    empty = np.isin(np.char.lower(words), ["", "nan", "none"])
    try:
        numbers = np.where(empty, "-1", words).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{file}: boxes must be numbers ({error})") from error
    if not set(EDGES) & set(columns):
        numbers[:, 2:] += numbers[:, :2]
    boxes = numbers.round().astype(np.int64)
    boxes[empty.any(axis=1)] = -1
    full = boxes[:, 2] >= 0
    wrong = full & ((boxes[:, 0] >= boxes[:, 2]) | (boxes[:, 1] >= boxes[:, 3]))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"{file}: box {boxes[row].tolist()} is empty ({', '.join(EDGES)})")
    return boxes if full.any() else None


def inside(source: Place | bytes, box: Box) -> Loaded:
    """The pixels of a box."""
    with SafeImageFile(source) as whole:
        width, height = whole.size
        left, top = min(box[0], width - 1), min(box[1], height - 1)
        right, bottom = max(left + 1, min(box[2], width)), max(top + 1, min(box[3], height))
        return Loaded(whole.pixels((left, top, right, bottom)))


def mark(box: Box | None) -> str:
    """What a box adds to the name of its image."""
    return "" if box is None else f" [{','.join(map(str, box))}]"


def _four_words(columns: Columns, file: Place) -> np.ndarray | None:  # [n, 4]
    """What stands in the columns, whichever they are."""
    if any(edge in columns for edge in EDGES):
        there = [edge for edge in EDGES if edge in columns]
        if len(there) < len(EDGES):
            raise ValueError(f"{file} has {', '.join(there)} but a box needs {', '.join(EDGES)}")
        return np.array([columns[edge] for edge in EDGES]).T
    for names in _EXTENTS:
        if all(name in columns for name in names):
            return np.array([columns[name] for name in names]).T
    if _CELL not in columns:
        return None
    rows = [re.findall(r"[^\s,;\[\]()]+", cell) or [""] * 4 for cell in columns[_CELL]]
    for number, (row, cell) in enumerate(zip(rows, columns[_CELL], strict=True), start=2):
        if len(row) != len(EDGES):
            raise ValueError(
                f"{file}, row {number}: bbox must be x, y, width, height, got {cell!r}"
            )
    return np.array(rows)
