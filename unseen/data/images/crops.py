"""Where a crop lies in an image, drawn or fixed, the way from an image to its pixels, and
from these to what a network expects.

A crop is a box of the image, the size the box is resized to, and a window of the result; where
the window reaches over the edge there is black. Pixels stay 8-bit until they are normalised.

Against cropping and resizing with Pillow (torchvision on Pillow images) levels differ by at most
one of 255, because torch's resize rounds otherwise; it takes a third of the time.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unseen.core.contracts import LazyImage, Pixels
from unseen.core.files import Box, Size
from unseen.core.torchvision_operators import vision
from unseen.data.images.load_image import BICUBIC_DECODE

Channels = tuple[float, float, float]

BILINEAR, BICUBIC, LANCZOS = "bilinear", "bicubic", "lanczos"
USUAL_CROP_PCT = 224 / 256  # of the short side, which a centre crop shows

_TRIES = 10
_SPARE = 8  # source pixels kept around a window that is cut out of a very long image


class Loaded:
    """An image in memory. pixels: 8-bit RGB [height, width, 3], writable."""

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


class Prepared:
    """An image that a data set's own transform has made a tensor of [3, side, side]. make: the
    tensor, random steps drawn by a seed."""

    def __init__(self, make: Callable[[int], Tensor], side: int) -> None:
        self._make, self.size = make, (side, side)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tensor(self, rng: np.random.Generator | None) -> Tensor:  # [3, side, side]
        return self._make(0 if rng is None else int(rng.integers(2**32)))

    def pixels(self, box: Box | None = None, size: Size | None = None) -> Pixels:
        """For people's eyes: from the smallest to the largest number."""
        values = self._make(0).permute(1, 2, 0).numpy()
        levels = (values - values.min()) * (255 / max(float(np.ptp(values)), 1e-6))
        return Loaded(levels.round().astype(np.uint8)).pixels(box)


def as_image(image: LazyImage | Image.Image) -> LazyImage:
    return Loaded(np.array(image)) if isinstance(image, Image.Image) else image


@dataclass(frozen=True)
class Resizing:
    """How a network's images are resized before the centre crop: by `interpolation`, so that the
    crop has `crop_pct` of the short side, or of both where the image is squeezed to a square."""

    interpolation: str = BILINEAR
    crop_pct: float = USUAL_CROP_PCT
    is_squeezed: bool = False

    def __post_init__(self) -> None:
        if self.interpolation not in (BILINEAR, BICUBIC, LANCZOS):
            allowed = f"{BILINEAR}, {BICUBIC}, {LANCZOS}"
            raise ValueError(f"interpolation must be one of {allowed}, got {self.interpolation!r}")
        if not 0 < self.crop_pct <= 1:
            raise ValueError(f"crop_pct must be in (0, 1], got {self.crop_pct}")


class Crop(NamedTuple):
    """`box` of the image, resized to `size`, of which `window` counts (None: all of it)."""

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
    """The size of an image whose shorter side is brought to `short`."""
    longer = int(short * max(width, height) / min(width, height))
    return (short, longer) if width <= height else (longer, short)


def random_window(size: Size, side: int, rng: np.random.Generator) -> Box:
    """A square anywhere in a resized image; where that is too small, anywhere around it."""
    left, top = (
        int(rng.integers(min(0, length - side), max(0, length - side) + 1)) for length in size
    )
    return left, top, left + side, top + side


def center_window(size: Size, side: int) -> Box:
    left, top = (round((length - side) / 2) for length in size)
    return left, top, left + side, top + side


def cut(image: LazyImage, crop: Crop, interpolation: str = BILINEAR) -> Pixels:
    """The pixels of a crop."""
    crop = _shortened(crop)
    more = BICUBIC_DECODE if interpolation == BICUBIC else 1
    decoded = image.pixels(crop.box, (more * crop.size[0], more * crop.size[1]))
    resized = resize(decoded, crop.size, interpolation)
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


def resize(pixels: Pixels, size: Size, interpolation: str = BILINEAR) -> Pixels:
    """Antialiased; bilinear by torch, bicubic and Lanczos by Pillow, as timm and HORDE have it."""
    width, height = size
    if pixels.shape[:2] == (height, width):
        return pixels
    if interpolation != BILINEAR:
        kind = Image.Resampling[interpolation.upper()]
        return np.array(Image.fromarray(pixels).resize(size, kind))
    image = torch.from_numpy(pixels).permute(2, 0, 1)  # [3, h, w]
    resized: Pixels = vision().resize(image, [height, width]).permute(1, 2, 0).numpy()
    return resized


def _shortened(crop: Crop) -> Crop:
    """Of a very long image only the part around the window is resized: the whole could be a
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


@dataclass(frozen=True)
class Normalization:
    """size: side of the result. mean, std: of the channels, on a scale of 0..1."""

    size: int
    mean: Channels
    std: Channels

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ValueError(f"mean and std need 3 values each, got {self.mean} and {self.std}")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")

    def normalized(self, pixels: Pixels) -> Tensor:  # [3, height, width]
        """pixels / (255 std) - mean / std of each channel."""
        # numpy: torch would start a team of threads inside every loader thread
        planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))  # while a number is a byte long
        scaled = planes.astype(np.float32)
        scaled *= np.array([1 / (255 * std) for std in self.std], dtype=np.float32)[:, None, None]
        shift = [mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        scaled -= np.array(shift, dtype=np.float32)[:, None, None]
        return torch.from_numpy(scaled)

    def colors(self, image: Tensor) -> Image.Image:  # [3, height, width]
        """What a network gets, brought back to an image."""
        levels = image.numpy().transpose(1, 2, 0) * np.array(self.std) + np.array(self.mean)
        return Image.fromarray((levels * 255).round().clip(0, 255).astype(np.uint8))
