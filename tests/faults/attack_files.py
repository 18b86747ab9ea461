"""Small image files that take a decoder long, or much memory."""

import io
import struct
import zlib
from collections.abc import Callable

from PIL import Image


def written(form: str, size: tuple[int, int] = (64, 48), **how: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "navy").save(file, form, **how)
    return file.getvalue()


def jpeg_of_scans(number: int, size: tuple[int, int] = (64, 48)) -> bytes:
    """Sequential; each scan holds one of three components again, and next to no data."""
    content = written("JPEG", size, subsampling=0)
    header = content[: content.index(b"\xff\xda")]
    scan = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0\0"
    return header + number * scan + b"\xff\xd9"


def jpeg_of_passes(number: int, size: tuple[int, int] = (64, 48)) -> bytes:
    """Progressive, with its last scan again and again."""
    content = written("JPEG", size, progressive=True)
    last = content.rindex(b"\xff\xda")
    return content[:last] + number * content[last:-2] + content[-2:]


def jpeg_of_comments(number: int) -> bytes:
    content = written("JPEG")
    return content[:2] + number * b"\xff\xfe\0\x02" + content[2:]


def jpeg_of_filling(number: int) -> bytes:
    content = written("JPEG")
    return content[:2] + number * b"\xff" + content[2:]


def chunk(name: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of_chunks(number: int, part: bytes = chunk(b"teSt")) -> bytes:
    content = written("PNG")
    return content[:33] + number * part + content[33:]


def png_of_profiles(number: int) -> bytes:
    return png_of_chunks(number, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(900_000))))


def gif_of_comments(number: int) -> bytes:
    content = written("GIF", (8, 8))
    start = 13 + (3 << (content[10] & 7) + 1 if content[10] & 0x80 else 0)
    return content[:start] + b"!\xfe" + number * b"\x01a" + b"\0" + content[start:]


def tiff(entries: dict[int, tuple[int, int, int]], data: bytes = b"") -> bytes:
    """entries: kind, count and value by tag; data begin at byte 8."""
    fields = [struct.pack("<HHLL", tag, *entries[tag]) for tag in sorted(entries)]
    directory = struct.pack("<H", len(fields)) + b"".join(fields) + bytes(4)
    return struct.pack("<2sHL", b"II", 42, 8 + len(data)) + data + directory


def grey(width: int, height: int) -> dict[int, tuple[int, int, int]]:
    return {256: (4, 1, width), 257: (4, 1, height), 258: (3, 1, 8), 259: (3, 1, 1), 262: (3, 1, 1)}


def tiff_of_tile(width: int, height: int) -> bytes:
    """One pixel, in a tile of many."""
    data = zlib.compress(bytes(1000))
    tile = {322: (4, 1, width), 323: (4, 1, height), 324: (4, 1, 8), 325: (4, 1, len(data))}
    return tiff(grey(1, 1) | tile | {259: (3, 1, 8)}, data)


def tiff_of_strips(number: int) -> bytes:
    data = struct.pack("<L", 8) * number + struct.pack("<L", 1) * number
    strips = {273: (4, number, 8), 278: (4, 1, 1), 279: (4, number, 8 + 4 * number)}
    return tiff(grey(1, number) | strips, data)


def tiff_of_entries(number: int) -> bytes:
    """All of them say the same kilobytes."""
    data = bytes(10_000)
    strips = {273: (4, 1, 8), 278: (4, 1, 1), 279: (4, 1, 1)}
    more = {40_000 + tag: (1, len(data), 8) for tag in range(number)}
    return tiff(grey(1, 1) | strips | more, data)


# name: the file, as many times as large as it takes to be refused, and the reason
SMALL: dict[str, tuple[Callable[[], bytes], str]] = {
    "scans": (lambda: jpeg_of_scans(3000), "11 scans, the limit is 10"),
    "passes": (lambda: jpeg_of_passes(200), "101 scans, the limit is 100"),
    "comments": (lambda: jpeg_of_comments(30_000), "segments, the limit is 20000"),
    "filling": (lambda: jpeg_of_filling(30_000), "segments, the limit is 20000"),
    "chunks": (lambda: png_of_chunks(30_000), "chunks, the limit is 20000"),
    "profiles": (lambda: png_of_profiles(120), "compressed texts and profiles, the limit is 100"),
    "blocks": (lambda: gif_of_comments(6000), "blocks, the limit is 5000"),
    "tile": (lambda: tiff_of_tile(4096, 2048), "pixels in a tile, the limit is 4194304"),
    "strips": (lambda: tiff_of_strips(150_000), "strips or tiles, the limit is 100000"),
    "entries": (lambda: tiff_of_entries(5), "bytes of entries, the limit is"),
}
# as they took the service down
LARGE: dict[str, Callable[[], bytes]] = {
    "3,000 scans": lambda: jpeg_of_scans(3000, (5000, 7900)),
    "39 million pixels": lambda: written("PNG", (6200, 6300)),
    "tile of 16384 x 32000": lambda: tiff_of_tile(16384, 32000),
    "4 million comments": lambda: jpeg_of_comments(4_000_000),
    "1.5 million chunks": lambda: png_of_chunks(1_500_000),
    "2 million strips": lambda: tiff_of_strips(2_000_000),
    "100 passes": lambda: jpeg_of_passes(90, (5000, 7900)),
}
