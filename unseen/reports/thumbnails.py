"""Small images inside the page: single ones for the grid, one sheet of many for the map."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageOps

from unseen.core.contracts import Dataset, FeatureDataset
from unseen.data.images.decode import UnreadableImageError

TILE = 96


@dataclass(frozen=True)
class Tile:
    """An image of the grid. word: what it is, for its frame and for who cannot see it."""

    image: str  # a data URI; empty for features, which have no image
    name: str
    word: str
    conclusion: str
    side: int = TILE


@dataclass(frozen=True)
class Explained:
    """Why two images are alike: both with their heat, as a data URI, and in words."""

    image: str
    width: int
    height: int
    sentences: list[str]


@dataclass(frozen=True)
class Row:
    """A query and what it found, and why the first of it."""

    query: Tile
    answers: list[Tile]
    why: Explained | None = None


def tile(index: int, dataset: Dataset, word: str, conclusion: str) -> Tile:
    """An image of the data set with its class and a conclusion on it."""
    name = str(dataset.label_names[dataset.labels[index]])
    is_image = not isinstance(dataset, FeatureDataset)
    uri = data_uri(fitted(image_of(dataset, index), TILE)) if is_image else ""
    return Tile(uri, name, word, conclusion)


def query(index: int, dataset: Dataset) -> Tile:
    return tile(index, dataset, "query", "query")


def answer(index: int, dataset: Dataset, is_right: bool, message: str) -> Tile:
    """`told` stands after the sign."""
    word, sign = ("right", "✓") if is_right else ("wrong", "✗")
    return tile(index, dataset, word, f"{sign} {message}")


def image_of(dataset: Dataset, index: int) -> Image.Image:
    """A grey square for a file that cannot be read any more: the page has others to show."""
    try:
        return dataset.image(int(index))
    except UnreadableImageError:
        return Image.new("RGB", (TILE, TILE), "lightgrey")


def fitted(image: Image.Image, side: int) -> Image.Image:
    """The whole image, at most `side` pixels wide and high: around it the page shows through."""
    size = min(side, max(image.size))
    return ImageOps.contain(image.convert("RGB"), (size, size), Image.Resampling.LANCZOS)


def data_uri(image: Image.Image, quality: int = 80) -> str:
    """The image as WebP, in the text of an address."""
    file = io.BytesIO()
    image.save(file, "WEBP", quality=quality, method=4)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def sheet(dataset: Dataset, indices: Sequence[int], side: int) -> tuple[str, int]:
    """Images side by side in reading order, as one data URI, and how many stand in a row."""
    columns = math.ceil(math.sqrt(len(indices)))
    rows = math.ceil(len(indices) / columns)
    canvas = Image.new("RGBA", (columns * side, rows * side))
    for place, index in enumerate(indices):
        tile = ImageOps.contain(image_of(dataset, index).convert("RGB"), (side, side))
        x, y = (side - tile.width) // 2, (side - tile.height) // 2
        canvas.paste(tile, (place % columns * side + x, place // columns * side + y))
    return data_uri(canvas, quality=50), columns
