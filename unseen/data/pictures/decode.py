"""Picture files to RGB, guarded: whatever is wrong with a file ends in one error that names it.

EXIF orientation is applied, transparency laid over white, the first frame of an animation taken,
16-bit and float greys brought to 8 bits. Pictures beyond Pillow's `Image.MAX_IMAGE_PIXELS` are
refused: a small file can claim a gigapixel.
"""

import math
from os import PathLike

import numpy as np
from PIL import Image, ImageOps

Path = str | PathLike[str]


class UnreadablePictureError(ValueError):
    """A picture that cannot be used. `path` says which, `reason` why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read picture {path}: {reason}")
        self.path, self.reason = path, reason


def decode(path: Path, short_side: int | None = None) -> Image.Image:
    """The upright RGB picture. With `short_side`, a JPEG may come smaller, decoded at the smallest
    of its cheap scales (1/2, 1/4, 1/8) that leaves the short side at least that long."""
    try:
        with Image.open(path) as image:
            _refuse_bomb(path, image.size)
            if short_side is not None:
                _draft(image, short_side)
            image.load()
            return _as_rgb(_upright(image))
    except UnreadablePictureError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        raise UnreadablePictureError(path, _reason(error)) from error


def check(path: Path) -> None:
    """Raises as `decode` would for a file whose header is no picture's, without decoding pixels."""
    try:
        with Image.open(path) as image:
            _refuse_bomb(path, image.size)
            image.verify()
    except UnreadablePictureError:
        raise
    except Exception as error:
        raise UnreadablePictureError(path, _reason(error)) from error


def _refuse_bomb(path: Path, size: tuple[int, int]) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and math.prod(size) > limit:
        width, height = size
        raise UnreadablePictureError(path, f"{width} x {height} pixels, the limit is {limit}")


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "not a picture"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"too many pixels, the limit is {Image.MAX_IMAGE_PIXELS}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__


def _draft(image: Image.Image, short_side: int) -> None:
    """Asks the JPEG decoder for a smaller picture; other formats ignore it."""
    ratio = short_side / min(image.size)
    if ratio < 1:
        width, height = image.size
        image.draft(None, (math.ceil(width * ratio), math.ceil(height * ratio)))


def _upright(image: Image.Image) -> Image.Image:
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception:
        return image  # broken metadata does not break the pixels
    return image


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit greys, whatever the width they are kept in
        image = Image.fromarray((np.asarray(image).clip(0, 65535) / 257).round().astype(np.uint8))
    elif image.mode == "F":
        grey = np.nan_to_num(np.asarray(image))
        grey = grey * 255 if grey.max(initial=0) <= 1 else grey
        image = Image.fromarray(grey.round().clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")
