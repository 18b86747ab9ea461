"""Picture files to RGB, guarded: whatever is wrong with a file ends in one error that names it.

EXIF orientation is applied, transparency laid over white, the first frame of an animation taken,
16-bit and float greys brought to 8 bits, CMYK and palettes turned to RGB. A small file can claim a
gigapixel, or thousands of scans over the same pixels: both are refused before anything is decoded.
Only formats of photographs and drawings are tried, none that runs a program. Pipes and devices are
no files, and a name that is not UTF-8 cannot be written to any table or page: both are refused.

    decode("photo.jpg")                        a whole picture
    decode("s3://bucket/photo.jpg")            one that lies elsewhere (`containers.places`)
    decode(uploaded_bytes, max_pixels=10**7)   bytes from elsewhere, with a tighter limit
    with PictureFile("photo.jpg") as picture:  some of its pixels, cheaply:
        picture.pixels(box=(100, 50, 1100, 950), size=(224, 224))

A JPEG is decoded at the smallest of its cheap scales (1, 1/2, 1/4, 1/8) that leaves what is asked
for at least as large as it is wanted. Against decoding all and reducing later, edges of a box move
by at most half a pixel of the decoded picture, and grey levels by about one.
"""

import io
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Self

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps

from unseen.contracts import Box, Size, UnreadablePictureError
from unseen.data.containers import places
from unseen.extras import install_command
from unseen.files import is_text

Path = str | os.PathLike[str]
Source = Path | bytes

MAX_PIXELS = 1 << 26  # 67 million: a decoded picture stays under 300 MB
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif", ".heic", ".heif"}
)
HEIF = "HEIF"  # what telephones write (.heic); read where pillow-heif is installed
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1")
_MAX_SCANS = 100  # of a progressive JPEG; writers make about ten
_ROWS = 256  # of a deep picture that are brought to 8 bits together
_IN_MEMORY = "(in memory)"
_SWAPPED = frozenset({5, 6, 7, 8})  # EXIF orientations that exchange width and height
ORIENTATION = 0x0112  # the EXIF tag
ENDS_EARLY = "the file ends too early"
_ENDED = ("truncated", "unexpected end", "premature end", "not enough image data")  # Pillow says


class PictureFile:
    """An opened picture: its size is known, its pixels wait until somebody says which and how
    small; they are given once. source: a path, or the bytes of a file, which may have a name."""

    def __init__(
        self, source: Source, max_pixels: int = MAX_PIXELS, name: str = _IN_MEMORY
    ) -> None:
        self.path: Path = name if isinstance(source, bytes) else source
        with _naming(self.path):
            self._image = _opened(source)
            try:
                _refuse_bomb(self.path, self._image, max_pixels)
                width, height = self._image.size
                self._orientation = orientation(self._image)
            except BaseException:
                self._image.close()
                raise
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
        """A box of the upright picture (None: all), perhaps reduced, but not below `size`."""
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
        """The whole upright picture, perhaps reduced, but so that `box` is not below `size`."""
        with _naming(self.path):
            self._reduce(box, size)
            return self._loaded()

    def _loaded(self) -> Image.Image:
        self._image.load()
        return _as_rgb(_upright(self._image) if self._orientation > 1 else self._image)

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
    """The upright RGB picture. With `short_side`, a JPEG may come smaller, its short side at least
    that long."""
    with PictureFile(source, max_pixels) as picture:
        if short_side is None:
            return picture.image()
        return picture.image(size=_scaled(picture.size, short_side / min(picture.size)))


def check(source: Source, max_pixels: int = MAX_PIXELS) -> None:
    """Raises as `decode` would for a file whose header is no picture's, without decoding pixels."""
    path: Path = _IN_MEMORY if isinstance(source, bytes) else source
    with _naming(path), _opened(source) as image:
        _refuse_bomb(path, image, max_pixels)
        image.verify()


def is_picture(name: str) -> bool:
    """By its name; hidden files and macOS's `._*` companions are none."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def orientation(image: Image.Image) -> int:
    """How EXIF says the picture is turned; 1 is upright. Broken metadata says nothing."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:
        return 1


def _opened(source: Source) -> ImageFile.ImageFile:
    if not isinstance(source, bytes) and places.is_elsewhere(source):
        source = places.read(os.fspath(source))
    if isinstance(source, bytes):
        return _pillow(io.BytesIO(source))
    found = os.stat(source)
    kind = found.st_mode
    if stat.S_ISREG(kind) and not found.st_size:
        raise UnreadablePictureError(source, "no bytes")
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # to open a pipe is to wait for its writer
        raise UnreadablePictureError(source, "a pipe, socket or device, not a file")
    if not is_text(source):
        raise UnreadablePictureError(source, "its name is not UTF-8: rename it")
    return _pillow(source)


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
    except UnreadablePictureError:
        raise
    except Exception as error:
        raise UnreadablePictureError(path, _reason(error)) from error


def _refuse_bomb(path: Path, image: Image.Image, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise UnreadablePictureError(path, f"{width} x {height} pixels, the limit is {max_pixels}")
    if image.info.get("progressive") and (stream := getattr(image, "fp", None)) is not None:
        place = stream.tell()
        stream.seek(0)
        scans = stream.read().count(b"\xff\xda")
        stream.seek(place)
        if scans > _MAX_SCANS:
            raise UnreadablePictureError(path, f"{scans} scans, the limit is {_MAX_SCANS}")


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "not a picture"
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


def _upright(image: Image.Image) -> Image.Image:
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception:
        return image  # broken metadata does not break the pixels
    return image


def _as_rgb(image: Image.Image) -> Image.Image:
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
