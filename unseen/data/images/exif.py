"""When and where an image was taken, as its EXIF data say."""

import math
from datetime import datetime
from pathlib import Path
from typing import Any

from PIL import Image

from unseen.data.images.decode import MAX_PIXELS, opened

OF_FILE = "exif_"  # columns that come from the file itself
TIME, GPS, ORIGINAL, CHANGED = 0x8769, 0x8825, 0x9003, 0x0132
SOUTH_OR_WEST = ("S", "W")


def taken(source: Path | bytes) -> dict[str, str | float]:
    """`exif_date` (ISO 8601, local time), `exif_latitude` and `exif_longitude` in degrees: what is
    there and makes sense. The header alone is read.

    Args:
        source: A file or its bytes.

    Example:
        >>> taken(Path("docs/why_alike.png"))
        {}
    """
    try:
        with opened(source, MAX_PIXELS) as image:
            exif = Image.Image.getexif(image)  # a PNG's own would decode its pixels
            times, place = exif.get_ifd(TIME), exif.get_ifd(GPS)
    except Exception:  # broken metadata do not break an image
        return {}
    known = {
        f"{OF_FILE}date": _date(times.get(ORIGINAL) or exif.get(CHANGED)),
        f"{OF_FILE}latitude": _degrees(place.get(2), place.get(1), 90),
        f"{OF_FILE}longitude": _degrees(place.get(4), place.get(3), 180),
    }
    return {name: value for name, value in known.items() if value is not None}


def _date(text: Any) -> str | None:
    try:
        return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").isoformat()
    except ValueError:
        return None


def _degrees(parts: Any, side: Any, most: int) -> float | None:
    try:
        degrees, minutes, seconds = map(float, parts)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    value = degrees + minutes / 60 + seconds / 3600
    if not math.isfinite(value) or not 0 <= value <= most:
        return None
    return -value if side in SOUTH_OR_WEST else value
