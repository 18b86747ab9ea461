"""One look at one image file: what is wrong with it, what is unusual, and what it looks like.

    wrong    empty        no bytes                  unusual  animated   only the first frame counts
             missing      no such file                       cmyk       turned to RGB
             not_image  no known format                    deep       16 bits or floats, made 8
             huge         too many pixels or scans           turned     EXIF orientation applied
             truncated    pixels end too early               tiny       a side under 32 pixels
             unreadable   anything else                      disguised  the suffix lies

What is wrong cannot be trained on; what is unusual is read, and worth knowing.
"""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.core import uris
from unseen.core.files import shown
from unseen.core.uris import Place
from unseen.data.containers import locations
from unseen.data.images import duplicates
from unseen.data.images.decode import (
    ENDS_EARLY,
    FORMATS,
    TOO_MUCH,
    SafeImageFile,
    UnreadableImageError,
    orientation,
)

WRONG = ("empty", "missing", "not_image", "huge", "truncated", "unreadable")
UNUSUAL = ("animated", "cmyk", "deep", "turned", "tiny", "disguised")
_DECODED_SIZE = (72, 72)  # pixels an image is decoded to at least, for its hash and thumbnail
_TINY = 32
_SUFFIXES = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".gif": "GIF",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}


@dataclass(frozen=True)
class Finding:
    """What was found at a path. `hash`, `thumbnail`: its look, None where it cannot be read."""

    path: Place
    problems: tuple[str, ...] = ()
    reason: str = ""
    size: tuple[int, int] = (0, 0)
    digest: bytes = b""
    hash: np.uint64 | None = None
    thumbnail: NDArray[np.uint8] | None = None

    @property
    def is_usable(self) -> bool:
        return not set(self.problems) & set(WRONG)


def inspect(path: Place) -> Finding:
    """Reads the file once, decodes it once, as small as may be."""
    try:
        source = _source(path)
        if source is None:
            return Finding(path, ("empty",), "no bytes")
        with SafeImageFile(source, name=shown(path)) as image:
            if isinstance(source, bytes):
                digest = hashlib.sha256(source).digest()
            else:
                digest = duplicates.digest(Path(path))
            unusual = _unusual(uris.suffix(path), image.header)
            size = image.size
            small = image.image(size=_DECODED_SIZE)
    except UnreadableImageError as error:
        return Finding(path, (_kind(error),), error.reason)
    except OSError as error:
        kind = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        why = os.strerror(error.errno) if error.errno else str(error)
        return Finding(path, (kind,), why.lower())
    code, thumbnail = duplicates.appearance(small)
    return Finding(path, unusual, "", size, digest, code, thumbnail)


def inspect_loaded(name: str, digest: bytes, image: Callable[[], Image.Image]) -> Finding:
    """The same for an image that is no file of its own."""
    try:
        result = image()
    except UnreadableImageError as error:
        return Finding(Path(name), ("unreadable",), error.reason)
    code, thumbnail = duplicates.appearance(result)
    return Finding(Path(name), (), "", result.size, digest, code, thumbnail)


def _source(path: Place) -> Place | bytes | None:
    """What is decoded; None where there are no bytes."""
    if isinstance(path, str):
        return locations.read(path) or None
    state = path.stat()
    return None if stat.S_ISREG(state.st_mode) and not state.st_size else path


def _kind(error: UnreadableImageError) -> str:
    if isinstance(error.__cause__, Image.UnidentifiedImageError):
        return "not_image"
    if isinstance(error.__cause__, TOO_MUCH):
        return "huge"
    return "truncated" if error.reason == ENDS_EARLY else "unreadable"


def _unusual(ending: str, image: Image.Image) -> tuple[str, ...]:
    suffix = _SUFFIXES.get(ending)
    kind = "JPEG" if image.format == "MPO" else image.format
    tiles = getattr(image, "tile", None) or [("", "", 0, "")]
    layout = str(tiles[0][3])
    is_deep = image.mode.startswith(("I", "F")) or ";16" in layout
    signs = {
        "animated": image.format != "MPO" and bool(getattr(image, "is_animated", False)),
        "cmyk": image.mode == "CMYK",
        "deep": is_deep,
        "turned": orientation(image) in range(2, 9),
        "tiny": min(image.size) < _TINY,
        "disguised": suffix is not None and kind in FORMATS and kind != suffix,
    }
    return tuple(name for name in UNUSUAL if signs[name])
