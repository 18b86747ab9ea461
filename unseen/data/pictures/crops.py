"""Where a crop lies in a picture, drawn or fixed, and the way from a picture to its pixels.

A crop is a box of the picture, the size the box is resized to, and a window of the result; where
the window reaches over the edge there is black. Pixels stay 8-bit until they are normalised.

Against cropping and resizing with Pillow (torchvision on Pillow pictures) levels differ by at most
one of 255, because torch's resize rounds otherwise; it takes a third of the time.
"""

import math
from typing import NamedTuple, Self

import numpy as np
import torch
from PIL import Image

from unseen.contracts import Box, Picture, Pixels, Size
from unseen.torchvision_operators import vision

_TRIES = 10
_SPARE = 8  # source pixels kept around a window that is cut out of a very long picture


class Loaded:
    """A picture in memory. pixels: 8-bit RGB [height, width, 3], writable."""

    def __init__(self, pixels: Pixels) -> None:
        self._pixels = pixels
        self.size: Size = (pixels.shape[1], pixels.shape[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pixels(self, box: Box | None = None, size: Size | None = None) -> Pixels:
        left, top, right, bottom = box or (0, 0, *self.size)
        return self._pixels[top:bottom, left:right]


def as_picture(picture: Picture | Image.Image) -> Picture:
    return Loaded(np.array(picture)) if isinstance(picture, Image.Image) else picture


class Crop(NamedTuple):
    """`box` of the picture, resized to `size`, of which `window` counts (None: all of it)."""

    box: Box
    size: Size
    window: Box | None = None


def random_area(
    width: int, height: int, side: int, area: tuple[float, float], rng: np.random.Generator
) -> Crop:
    """A box of a random share of the area and random shape (3/4 to 4/3); where ten tries do not
    fit, the largest one, centred."""
    narrow, wide = 3 / 4, 4 / 3
    areas = width * height * rng.uniform(*area, _TRIES)
    ratios = np.exp(rng.uniform(math.log(narrow), math.log(wide), _TRIES))
    for tried, ratio in zip(areas.tolist(), ratios.tolist(), strict=True):  # mostly the first
        w, h = round(math.sqrt(tried * ratio)), round(math.sqrt(tried / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return Crop((left, top, left + w, top + h), (side, side))
    w = max(1, min(width, round(height * wide)))
    h = max(1, min(height, round(width / narrow)))
    left, top = (width - w) // 2, (height - h) // 2
    return Crop((left, top, left + w, top + h), (side, side))


def with_short_side(width: int, height: int, short: int) -> Size:
    """The size of a picture whose shorter side is brought to `short`."""
    longer = int(short * max(width, height) / min(width, height))
    return (short, longer) if width <= height else (longer, short)


def random_window(size: Size, side: int, rng: np.random.Generator) -> Box:
    """A square anywhere in a resized picture; where that is too small, anywhere around it."""
    left, top = (
        int(rng.integers(min(0, length - side), max(0, length - side) + 1)) for length in size
    )
    return left, top, left + side, top + side


def centre_window(size: Size, side: int) -> Box:
    left, top = (round((length - side) / 2) for length in size)
    return left, top, left + side, top + side


def cut(picture: Picture, crop: Crop, *, lanczos: bool = False) -> Pixels:
    """The pixels of a crop."""
    crop = _shortened(crop)
    resized = resize(picture.pixels(crop.box, crop.size), crop.size, lanczos=lanczos)
    if crop.window is None:
        return resized
    (width, height), (left, top, right, bottom) = crop.size, crop.window
    inside = resized[max(0, top) : min(height, bottom), max(0, left) : min(width, right)]
    if inside.shape[:2] == (bottom - top, right - left):
        return inside
    canvas = np.zeros((bottom - top, right - left, 3), dtype=np.uint8)
    first_row, first_column = max(0, -top), max(0, -left)
    rows, columns = inside.shape[:2]
    canvas[first_row : first_row + rows, first_column : first_column + columns] = inside
    return canvas


def resize(pixels: Pixels, size: Size, *, lanczos: bool = False) -> Pixels:
    """Antialiased; bilinear, or Lanczos by Pillow, as torch has none."""
    width, height = size
    if pixels.shape[:2] == (height, width):
        return pixels
    if lanczos:
        return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))
    image = torch.from_numpy(pixels).permute(2, 0, 1)  # [3, h, w]
    resized: Pixels = vision().resize(image, [height, width]).permute(1, 2, 0).numpy()
    return resized


def _shortened(crop: Crop) -> Crop:
    """Of a very long picture only the part around the window is resized: the whole could be a
    hundred times what is wanted."""
    if crop.window is None:
        return crop
    box, size, window = list(crop.box), list(crop.size), list(crop.window)
    for axis in (0, 1):
        length, scaled = box[axis + 2] - box[axis], crop.size[axis]
        if scaled <= 4 * (window[axis + 2] - window[axis]):
            continue
        first = max(0, math.floor(window[axis] * length / scaled) - _SPARE)
        last = min(length, math.ceil(window[axis + 2] * length / scaled) + _SPARE)
        before = round(first * scaled / length)
        size[axis] = max(window[axis + 2] - before, round((last - first) * scaled / length))
        window[axis], window[axis + 2] = window[axis] - before, window[axis + 2] - before
        box[axis], box[axis + 2] = box[axis] + first, box[axis] + last
    left, top, right, bottom = box
    return Crop((left, top, right, bottom), (size[0], size[1]), tuple(window))  # type: ignore[arg-type]
