"""What an image file claims of itself, read without a decoder: its size, and bounds on its parts.

A decoder works as long as a file says: once for each scan of a JPEG, each segment, chunk or strip,
for each pixel of a tile, however few bytes they take. `check_bounds` walks through the parts of a
file, which takes 3 % of the time of decoding a JPEG, and refuses what no writer makes.
"""

import io
import re
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from unseen.core.files import Size

_MAX_SCANS = 10  # of a sequential JPEG, which needs four
_MAX_PASSES = 100  # scans of a progressive JPEG; writers make about ten
_MAX_PARTS = 20_000  # segments of a JPEG, chunks of a PNG, entries of a TIFF
_MAX_INFLATED = 100  # compressed texts and profiles of a PNG, each up to a megabyte inflated
_MAX_BLOCKS = 5_000  # of a GIF before its first frame
_MAX_STRIPS = 100_000  # or tiles
_FREE_TILE = 1 << 22  # pixels a tile may have, however small the image is

JPEG_SIGNATURE, PNG_SIGNATURE = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_EOI, _SOS = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # start of frame
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_ALONE = frozenset({0x01, 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)})  # without a length
_AFTER_SCAN = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")  # the first marker after its data
_INFLATED = (b"iCCP", b"zTXt", b"iTXt")
_TIFF_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_TIFF_BYTES |= {16: 8, 17: 8, 18: 8}
_TIFF_LAYOUT = {43: ("Q", "HHQ8s"), 42: ("H", "HHL4s")}
_SIZES = (256, 257, 322, 323)  # width and height of the image, then of its tiles
_OFFSETS = (273, 324)  # of strips, of tiles


class TooMuchError(ValueError):
    """More pixels or components than any writer makes."""


class Header(NamedTuple):
    """size: as stored, before EXIF turns it. is_sequential: each pixel is coded once."""

    size: Size
    is_sequential: bool = True


def read_header(content: bytes) -> Header | None:
    """What a JPEG, PNG or WebP says in its first bytes; None for any other file.

    Example:
        >>> read_header(PNG_SIGNATURE + bytes(8) + struct.pack(">2I", 640, 480)).size
        (640, 480)
    """
    try:
        if content.startswith(JPEG_SIGNATURE):
            return _jpeg_header(content)
        if content.startswith(PNG_SIGNATURE):
            return Header(struct.unpack_from(">2I", content, 16))
        if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
            return _webp_header(content)
    except (struct.error, ValueError):
        pass
    return None


class Walked(NamedTuple):
    """What was seen on the way: all bytes of a JPEG, the EXIF data of a PNG."""

    content: bytes | None = None
    exif: bytes = b""


def check_bounds(stream: BinaryIO, max_pixels: int) -> Walked:
    """Walks through the parts of an image file; a ValueError for more than any writer makes.

    Args:
        stream: the file, from its first byte.
        max_pixels: of a WebP, for which Pillow takes memory before it tells the size.
    """
    head = stream.read(32)
    stream.seek(0)
    if head.startswith(JPEG_SIGNATURE):
        content = stream.read()
        _check_jpeg(content)
        return Walked(content)
    if head.startswith(PNG_SIGNATURE):
        return Walked(exif=_check_png(stream))
    if head.startswith((b"II", b"MM")):
        _check_tiff(stream)
    elif head.startswith(b"GIF8"):
        _check_gif(stream)
    elif (header := read_header(head)) is not None:
        check_size(header.size, max_pixels)
    return Walked()


def check_size(size: Size, max_pixels: int) -> None:
    """A ValueError for more pixels than that."""
    if size[0] * size[1] > max_pixels:
        raise TooMuchError(f"{size[0]} x {size[1]} pixels, the limit is {max_pixels}")


def _require(number: int, limit: int, what: str) -> None:
    if number > limit:
        raise TooMuchError(f"{number} {what}, the limit is {limit}")


def _markers(content: bytes) -> Iterator[tuple[int, int]]:
    """Markers of a JPEG, each with the place after it. Before the first scan every byte between
    segments counts as a part: Pillow takes them one by one."""
    place, parts, scanned = 2, 0, False
    while True:
        if scanned:
            result = _AFTER_SCAN.search(content, place)
            start = -1 if result is None else result.start()
        else:
            start = content.find(b"\xff", place)
            parts += start - place
        if not 0 <= start < len(content) - 1:
            return
        marker, place, parts = content[start + 1], start + 2, parts + 1
        _require(parts, _MAX_PARTS, "segments")
        if marker in (0x00, 0xFF):  # no marker: a byte of filling
            place -= marker == 0xFF
            continue
        yield marker, place
        scanned = scanned or marker == _SOS
        if scanned and marker == _EOI:
            return
        if marker not in _ALONE:
            place += max(2, int.from_bytes(content[place : place + 2], "big"))


def _jpeg_header(content: bytes) -> Header | None:
    for marker, place in _markers(content):
        if marker in _FRAMES:
            height, width = struct.unpack_from(">2H", content, place + 3)
            return Header((width, height), marker not in _PROGRESSIVE)
        if marker == _SOS:
            break
    return None


def _check_jpeg(content: bytes) -> None:
    """Where the first scan holds all components in sequence, decoders need no other, and the walk
    ends there: no time is spent on the data of most photographs."""
    scans, limit, components = 0, _MAX_SCANS, 0
    for marker, place in _markers(content):
        if marker in _FRAMES:
            components = max(components, *content[place + 7 : place + 8], 0)
            limit = _MAX_PASSES if marker in _PROGRESSIVE else limit
        elif marker == _SOS:
            scans += 1
            _require(scans, limit, "scans")
            if limit == _MAX_SCANS and components <= max(content[place + 2 : place + 3], default=0):
                return


def _webp_header(content: bytes) -> Header | None:
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = content[24:27], content[27:30]
        return Header((1 + int.from_bytes(width, "little"), 1 + int.from_bytes(height, "little")))
    if kind == b"VP8L":
        bits = int.from_bytes(content[21:25], "little")
        return Header((1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)))
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<2H", content, 26)
        return Header((width & 0x3FFF, height & 0x3FFF))
    return None


def _check_png(stream: BinaryIO) -> bytes:
    stream.seek(len(PNG_SIGNATURE))
    exif, chunks, inflated = b"", 0, 0
    while len(head := stream.read(8)) == 8:
        length, name = int.from_bytes(head[:4], "big"), head[4:]
        chunks, inflated = chunks + 1, inflated + (name in _INFLATED)
        _require(chunks, _MAX_PARTS, "chunks")
        _require(inflated, _MAX_INFLATED, "compressed texts and profiles")
        if name == b"eXIf" and not exif:
            exif = stream.read(length)
            length -= len(exif)
        if name == b"IEND":
            break
        stream.seek(length + 4, io.SEEK_CUR)
    return exif


def _check_gif(stream: BinaryIO) -> None:
    flags = stream.read(13)[10:11]
    if flags and flags[0] & 0x80:
        stream.seek(3 << (flags[0] & 7) + 1, io.SEEK_CUR)
    blocks = 0
    while (kind := stream.read(1)) not in (b"", b",", b";"):
        blocks += 1
        _require(blocks, _MAX_BLOCKS, "blocks")
        if kind != b"!":
            continue
        stream.seek(1, io.SEEK_CUR)
        while (length := stream.read(1)) not in (b"", b"\0"):
            blocks += 1
            _require(blocks, _MAX_BLOCKS, "blocks")
            stream.seek(length[0], io.SEEK_CUR)


def _check_tiff(stream: BinaryIO) -> None:
    """The first directory, which is all that is decoded."""
    head = stream.read(16)
    order = "<" if head.startswith(b"II") else ">"
    counted, entry = _TIFF_LAYOUT[43 if head[2:3] == b"\x2b" else 42]
    try:
        big = counted == "Q"
        (first,) = struct.unpack_from(order + ("Q" if big else "L"), head, 8 if big else 4)
        stream.seek(first)
        (number,) = struct.unpack(order + counted, stream.read(struct.calcsize(counted)))
    except (struct.error, OverflowError):
        return  # no TIFF; whoever decodes it says so
    _require(number, _MAX_PARTS, "entries")
    entries = stream.read(number * struct.calcsize("=" + entry))
    entries = entries[: len(entries) - len(entries) % struct.calcsize("=" + entry)]
    known = [_Entry(*fields) for fields in struct.iter_unpack(order + entry, entries)]
    num_bytes = stream.seek(0, io.SEEK_END)
    readable = (one.num_bytes for one in known if one.num_bytes <= num_bytes)
    _require(sum(readable), num_bytes, "bytes of entries")
    strips = max((one.number for one in known if one.tag in _OFFSETS), default=0)
    _require(strips, _MAX_STRIPS, "strips or tiles")
    _check_tile({tag: [one.first(order) for one in known if one.tag == tag] for tag in _SIZES})


class _Entry(NamedTuple):
    """Of a directory of a TIFF; value: what it says, or where that stands."""

    tag: int
    kind: int
    number: int  # of values
    value: bytes

    @property
    def num_bytes(self) -> int:
        return self.number * _TIFF_BYTES.get(self.kind, 0)

    def first(self, order: str) -> int:
        letter = {1: "B", 3: "H", 4: "L", 16: "Q"}.get(self.kind, "")
        fits = 0 < struct.calcsize("=" + letter) <= len(self.value)
        return int(struct.unpack_from(order + letter, self.value)[0]) if fits else 0


def _check_tile(sizes: dict[int, list[int]]) -> None:
    """Who says a size twice is taken at the worse word."""
    width, height = (min(sizes[tag], default=0) for tag in _SIZES[:2])
    tile_width, tile_height = (max(sizes[tag], default=0) for tag in _SIZES[2:])
    _require(tile_width * tile_height, max(_FREE_TILE, 4 * width * height), "pixels in a tile")
