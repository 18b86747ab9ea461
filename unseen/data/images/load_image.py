"""An image file to the pixels a network takes, with Pillow and NumPy alone; bundles ship this file.

load_image("photo.jpg", json.load(open("preprocessing.json")))      # [3, size, size]
"""

import math
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

BICUBIC_DECODE = 3  # times the size wanted: then a JPEG decoded smaller is as one decoded whole
_ROWS = 256  # of a deep image that are brought to 8 bits together


def load_image(
    file: str | PathLike[str], preprocessing: dict[str, Any]
) -> NDArray[Any]:  # [3, size, size]
    """The upright image in RGB, resized and cropped as in evaluation.

    Args:
        file: an image in any format that Pillow reads.
        preprocessing: the content of `preprocessing.json`; its `dtype` is that of the result.
    """
    to, size = preprocessing["to"], preprocessing["size"]
    kind = preprocessing["interpolation"].partition(",")[0]
    with Image.open(file) as opened:
        width, height = opened.size
        more = BICUBIC_DECODE if kind == "bicubic" else 1
        ratio = min(1.0, more * to / min(width, height))
        opened.draft(None, (math.ceil(width * ratio), math.ceil(height * ratio)))  # JPEG: cheaper
        decoded, scale = opened.size, round(max(width, height) / max(opened.size))
        image = upright(opened)
        if image.size != decoded:
            width, height = height, width
        image = as_rgb(image)
    if preprocessing["crop"]:  # without a pixel that is only in part one of the file's
        image = image.crop((0, 0, max(1, round(width / scale)), max(1, round(height / scale))))
    w = h = to
    if preprocessing["resize"] == "short side":  # cut to whole pixels, not rounded
        w, h = (to, int(to * height / width)) if width <= height else (int(to * width / height), to)
    if kind != "bilinear":
        pixels = np.asarray(image.resize((w, h), Image.Resampling[kind.upper()]))
    else:
        pixels = _resized(np.asarray(image), (w, h), np.dtype(preprocessing["dtype"]))
    left, top = round((w - size) / 2), round((h - size) / 2)
    return pixels[top : top + size, left : left + size].transpose(2, 0, 1)


def _resized(
    pixels: NDArray[Any], size: tuple[int, int], dtype: np.dtype[Any]
) -> NDArray[Any]:  # [h, w, 3] -> [height, width, 3]
    """Bilinear and antialiased, with PyTorch's rounding: 8-bit levels have 16-bit weights and are
    rounded after each axis, floats are never rounded. Pillow's rounding differs by up to a level,
    which is much of a nearly flat image."""
    for axis, length in ((1, size[0]), (0, size[1])):
        if pixels.shape[axis] == length:
            continue
        first, weights = _filter(pixels.shape[axis], length)
        bits = 0
        total: NDArray[Any] = np.zeros((), dtype=np.float64)
        if dtype == np.uint8:
            bits = next(b for b in range(22) if int(0.5 + weights.max() * 2 ** (b + 1)) >= 2**15)
            weights = (weights * 2**bits + 0.5).astype(np.int32)
            total = np.full((), 2**bits // 2, dtype=np.int32)
        for offset, weight in enumerate(weights.T):
            rows = pixels.take(np.minimum(first + offset, pixels.shape[axis] - 1), axis)
            total = total + rows * weight.reshape((-1, 1, 1) if axis == 0 else (-1, 1))
        pixels = (total >> bits).clip(0, 255).astype(np.uint8) if bits else total
    return pixels.astype(dtype)


def _filter(before: int, after: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each new pixel its first old one, and the weights [after, positions] from there on."""
    scale = before / after
    reach = max(scale, 1.0)
    center = scale * (np.arange(after) + 0.5)
    first = np.maximum((center - reach + 0.5).astype(np.int64), 0)
    positions = first[:, None] + np.arange(2 * math.ceil(reach) + 1)
    weights = (1 - np.abs(positions + 0.5 - center[:, None]) / reach).clip(min=0)
    weights[positions >= before] = 0
    return first, weights / weights.sum(axis=1, keepdims=True)


def upright(image: Image.Image) -> Image.Image:
    """As EXIF says it is turned; broken metadata does not break the pixels."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def as_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of any mode; transparency is laid over white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_eight_bits(image))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:  # [height, width]
    """16-bit greys, whatever the width they are kept in, or floats on 0..1 or 0..255."""
    deep = np.asarray(image)
    factor = 1 / 257
    if image.mode == "F":
        factor = 255 if np.nanmax(deep, initial=0) <= 1 else 1
    grey = np.empty(deep.shape, dtype=np.uint8)
    for start in range(0, len(deep), _ROWS):
        rows = np.nan_to_num(deep[start : start + _ROWS].astype(np.float32)) * factor
        grey[start : start + _ROWS] = rows.round().clip(0, 255)
    return grey
