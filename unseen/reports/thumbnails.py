"""Small pictures inside the page: single ones for the grid, one sheet of many for the map."""

import base64
import io
import math
from collections.abc import Sequence
from html import escape

from PIL import Image, ImageOps

from unseen.contracts import Dataset, FeatureDataset
from unseen.data.pictures.decode import UnreadablePictureError

TILE = 96


def tile(index: int, dataset: Dataset, word: str, verdict: str) -> str:
    """A picture of the grid as HTML, with its verdict and its class; features have no picture."""
    name = escape(str(dataset.label_names[dataset.labels[index]]))
    text = f'{verdict}<bdi class="name" title="{name}">{name}</bdi>'
    if isinstance(dataset, FeatureDataset):
        return text
    uri = data_uri(fitted(_picture(dataset, index), TILE))
    return (
        f'<img src="{uri}" alt="{word}: {name}" width="{TILE}" height="{TILE}" decoding="async">'
        f"{text}"
    )


def _picture(dataset: Dataset, index: int) -> Image.Image:
    """A grey square for a file that cannot be read any more: the page has others to show."""
    try:
        return dataset.picture(int(index))
    except UnreadablePictureError:
        return Image.new("RGB", (TILE, TILE), "lightgrey")


def fitted(picture: Image.Image, side: int) -> Image.Image:
    """The whole picture, centred in a white square of at most `side` pixels."""
    size = min(side, max(picture.size))
    return ImageOps.pad(picture.convert("RGB"), (size, size), Image.Resampling.LANCZOS, "white")


def data_uri(picture: Image.Image, quality: int = 80) -> str:
    """The picture as WebP, in the text of an address."""
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=quality, method=4)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def sheet(dataset: Dataset, indices: Sequence[int], side: int) -> tuple[str, int]:
    """Pictures side by side in reading order, as one data URI, and how many stand in a row."""
    columns = math.ceil(math.sqrt(len(indices)))
    rows = math.ceil(len(indices) / columns)
    canvas = Image.new("RGB", (columns * side, rows * side), "white")
    for place, index in enumerate(indices):
        tile = ImageOps.pad(_picture(dataset, index).convert("RGB"), (side, side), color="white")
        canvas.paste(tile, (place % columns * side, place // columns * side))
    return data_uri(canvas, quality=50), columns
