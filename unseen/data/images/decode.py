"""Image files to RGB, guarded: whatever is wrong with a file ends in one error that names it.

EXIF orientation is applied, transparency laid over white, the first frame of an animation taken,
16-bit and float greys brought to 8 bits, CMYK and palettes turned to RGB. A small file can claim a
gigapixel, thousands of scans over the same pixels, or millions of parts: all are refused before
anything is decoded (`header_limits.py`).
Only formats of photographs and drawings are tried, none that runs a program. Pipes and devices are
no files, and a name that is not UTF-8 cannot be written to any table or page: both are refused.

    decode("photo.jpg")                        a whole image
    decode("s3://bucket/photo.jpg")            one that lies elsewhere (`containers.locations`)
    decode(uploaded_bytes, max_pixels=10**7)   bytes from elsewhere, with a tighter limit
    with SafeImageFile("photo.jpg") as image:  some of its pixels, cheaply:
        image.pixels(box=(100, 50, 1100, 950), size=(224, 224))

A JPEG is decoded at the smallest of its cheap scales (1, 1/2, 1/4, 1/8) that leaves what is asked
for at least as large as it is wanted. Against decoding all and reducing later, edges of a box move
by at most half a pixel of the decoded image, and grey levels by about one.
"""

import io
import math
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Self

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageFile

from unseen.core.extras import install_command
from unseen.core.files import Box, Size, UnreadableImageError, is_text
from unseen.data.containers import locations
from unseen.data.images.header_limits import TooMuchError, check_bounds, check_size
from unseen.data.images.load_image import as_rgb, upright

Path = str | os.PathLike[str]
Source = Path | bytes

MAX_PIXELS = 1 << 26  # 67 million: a decoded image stays under 300 MB
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif", ".heic", ".heif"}
)
HEIF = "HEIF"  # what telephones write (.heic); read where pillow-heif is installed
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1")
_IN_MEMORY = "(in memory)"
_SWAPPED = frozenset({5, 6, 7, 8})  # EXIF orientations that exchange width and height
ORIENTATION = 0x0112  # the EXIF tag
TOO_MUCH = (TooMuchError, Image.DecompressionBombError, Image.DecompressionBombWarning)
ENDS_EARLY = "the file ends too early"
_ENDED = ("truncated", "unexpected end", "premature end", "not enough image data")  # Pillow says


class SafeImageFile:
    """An opened image: its size is known, its pixels wait until somebody says which and how
    small; they are given once. source: a path, or the bytes of a file, which may have a name."""

    def __init__(
        self, source: Source, max_pixels: int = MAX_PIXELS, name: str = _IN_MEMORY
    ) -> None:
        self.path: Path = name if isinstance(source, bytes) else source
        with _naming(self.path):
            self._image = opened(source, max_pixels)
            width, height = self._image.size
            self._orientation = orientation(self._image)
        is_swapped = self._orientation in _SWAPPED
        self.size: Size = (height, width) if is_swapped else (width, height)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._image.__exit__()  # closes the file; `close` would also take pixels already given

    @property
    def header(self) -> Image.Image:
        """What Pillow knows of the file before its pixels are decoded."""
        return self._image

    def pixels(
        self, box: Box | None = None, size: Size | None = None
    ) -> NDArray[np.uint8]:  # [height, width, 3]
        """A box of the upright image (None: all), perhaps reduced, but not below `size`."""
        with _naming(self.path):
            whole = self._whole(box, size)
            if box is None:
                return whole
            height, width = whole.shape[:2]
            scale = round(max(self.size) / max(height, width))
            left, top, right, bottom = (round(edge / scale) for edge in box)
            left, top = min(left, width - 1), min(top, height - 1)
            return whole[top : max(top + 1, bottom), left : max(left + 1, right)]

    def image(self, box: Box | None = None, size: Size | None = None) -> Image.Image:
        """The whole upright image, perhaps reduced, but so that `box` is not below `size`."""
        with _naming(self.path):
            self._reduce(box, size)
            return self._loaded()

    def _loaded(self) -> Image.Image:
        self._image.load()
        return as_rgb(upright(self._image) if self._orientation > 1 else self._image)

    def _whole(self, box: Box | None, size: Size | None) -> NDArray[np.uint8]:
        """What `image` gives, as an array; most JPEGs come straight from the decoder that
        Pillow uses too, without the way through Pillow's pixels of four bytes: same levels, a
        quarter less time."""
        self._reduce(box, size)
        image = self._image
        if image.format == "JPEG" and image.mode == "RGB" and self._orientation == 1:
            try:
                return _straight(image)
            except ValueError:
                pass  # Pillow forgives more, and says what is wrong with the rest
        return np.array(self._loaded())

    def _reduce(self, box: Box | None, size: Size | None) -> None:
        if size is not None:
            left, top, right, bottom = box or (0, 0, *self.size)
            ratio = max(size[0] / (right - left), size[1] / (bottom - top))
            if ratio < 1:  # other formats than JPEG ignore it
                self._image.draft(None, _scaled(self._image.size, ratio))


def decode(
    source: Source, short_side: int | None = None, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """The upright RGB image. With `short_side`, a JPEG may come smaller, its short side at least
    that long."""
    with SafeImageFile(source, max_pixels) as image:
        if short_side is None:
            return image.image()
        return image.image(size=_scaled(image.size, short_side / min(image.size)))


def check(source: Source, max_pixels: int = MAX_PIXELS) -> None:
    """Raises as `decode` would for a file whose header is no image's, without decoding pixels."""
    path: Path = _IN_MEMORY if isinstance(source, bytes) else source
    with _naming(path), opened(source, max_pixels) as image:
        image.verify()


def is_image(name: str) -> bool:
    """By its name; hidden files and macOS's `._*` companions are none."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def orientation(image: Image.Image) -> int:
    """How EXIF says the image is turned; 1 is upright. Broken metadata says nothing. A PNG's own
    `getexif` would decode its pixels."""
    try:
        return int(Image.Image.getexif(image).get(ORIENTATION, 1))
    except Exception:
        return 1


def opened(source: Source, max_pixels: int) -> ImageFile.ImageFile:
    """Pillow's image, within bounds, of which the header alone was read."""
    if not isinstance(source, bytes) and locations.is_elsewhere(source):
        source = locations.read(os.fspath(source))
    if not isinstance(source, bytes):
        _require_file(source)
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as stream:
        bounds = check_bounds(stream, max_pixels)
    if not isinstance(source, bytes) and bounds.content is not None:
        source = bounds.content
    image = _pillow(io.BytesIO(source) if isinstance(source, bytes) else source)
    try:
        check_size(image.size, max_pixels)
    except ValueError:
        image.close()
        raise
    if bounds.exif:
        image.info.setdefault("exif", bounds.exif)  # Pillow finds it behind the pixels, with them
    return image


def _require_file(path: Path) -> None:
    result = os.stat(path)
    kind = result.st_mode
    if stat.S_ISREG(kind) and not result.st_size:
        raise UnreadableImageError(path, "no bytes")
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # to open a pipe is to wait for its writer
        raise UnreadableImageError(path, "a pipe, socket or device, not a file")
    if not is_text(path):
        cure = "rename it" if sys.getfilesystemencoding() == "utf-8" else "set PYTHONUTF8=1"
        raise UnreadableImageError(path, f"its name is not UTF-8: {cure}")


def _pillow(source: Path | io.BytesIO) -> ImageFile.ImageFile:
    try:
        return Image.open(source, formats=FORMATS)
    except Image.UnidentifiedImageError:
        if not _is_heif(source):
            raise
    if not _reads_heif():
        raise ValueError(f"a HEIC file needs pillow-heif: {install_command('heic')}")
    return Image.open(source, formats=(HEIF,))


def _is_heif(source: Path | io.BytesIO) -> bool:
    """By the brand in the first box of the file (ISO/IEC 23008-12)."""
    if isinstance(source, io.BytesIO):
        head = source.getvalue()[:12]
    else:
        with open(source, "rb") as file:
            head = file.read(12)
    return head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS


@cache
def _reads_heif() -> bool:
    try:
        import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return False
    return True


def _straight(image: ImageFile.ImageFile) -> NDArray[np.uint8]:  # [height, width, 3]
    """An opened JPEG at the size Pillow would decode it to."""
    stream = image.fp
    if stream is None:
        raise ValueError("the file is closed")
    stream.seek(0)
    pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
        stream.read(), min_width=image.width, min_height=image.height
    )
    return pixels


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Pillow's decoders raise nearly anything on damaged bytes."""
    try:
        yield
    except UnreadableImageError:
        raise
    except Exception as error:
        raise UnreadableImageError(path, _reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"too many pixels, the limit is {MAX_PIXELS}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    message = " ".join(str(error).split())
    if any(word in message.lower() for word in _ENDED):
        return ENDS_EARLY
    return message or type(error).__name__


def _scaled(size: Size, ratio: float) -> Size:
    return math.ceil(size[0] * ratio), math.ceil(size[1] * ratio)
