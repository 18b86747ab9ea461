"""What a file may take in memory, by its own word, before anything is allocated.

    limit(file_bytes)            bytes that a file of that size may declare, and why no more
    require(name, declared, file_bytes)   raises `TooLargeError` where it declares more
    load(path)                   `np.load` after that check, without pickle
    check_zip(stream, name)      the check alone, of any file that is a zip (torch's)

A compressed file of zeros is a thousand times as large in memory. A file may declare 64 times its
size (256 MiB if that is more), and half of the machine's memory at most. `UNSEEN_READ_LIMIT=16`
sets another limit, in GB.
"""

import math
import os
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

VARIABLE = "UNSEEN_READ_LIMIT"
FLOOR = 256 << 20  # bytes that any file may declare
RATIO = 64  # times its size: features compress 1.1 to 10 times
FRACTION = 0.5  # of memory
ROW = 64  # bytes that a row takes at least: its name and label as texts
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


class TooLargeError(ValueError):
    """A file that declares more than the limit."""


def memory() -> int:
    """Bytes of this machine, or of the container."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(whole, int(_CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or "max": no limit
        return whole


def limit(file_bytes: int, in_memory: bool = True) -> tuple[int, str]:
    """The limit of a file, and what it is. in_memory: all of it is there at once."""
    if message := os.environ.get(VARIABLE):
        try:
            return int(float(message) * 1e9), VARIABLE
        except ValueError:
            raise ValueError(f"{VARIABLE} must be a number of GB, got {message!r}") from None
    fraction = int(FRACTION * memory())
    if in_memory and fraction < max(FLOOR, RATIO * file_bytes):
        return fraction, "half of this machine's memory"
    if RATIO * file_bytes > FLOOR:
        return RATIO * file_bytes, f"{RATIO} times its size"
    return FLOOR, "that of a small file"


def require(name: object, declared: int, file_bytes: int, in_memory: bool = True) -> None:
    """Refuses a file that declares more than its limit."""
    most, why = limit(file_bytes, in_memory)
    if declared > most:
        raise TooLargeError(
            f"{name} declares {_size(declared)} in memory and has {_size(file_bytes)} on the disk; "
            f"the limit is {_size(most)}, {why}: {VARIABLE}=GB in front of the command sets "
            "another, if you know who wrote it"
        )


def load(file: Path | str | BinaryIO, name: object = "", **how: Any) -> Any:
    """The array of a .npy file, or the opened arrays of an .npz file, as `np.load` gives them.

    Example: load("features.npz")["features"]
    """
    if isinstance(file, Path | str):
        with open(file, "rb") as stream:
            _check(stream, name or file, "mmap_mode" not in how)
    else:
        _check(file, name or "the file", in_memory=True)
    return np.load(file, allow_pickle=False, **how)


def _check(stream: BinaryIO, name: object, in_memory: bool) -> None:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    start = stream.read(2)
    stream.seek(0)
    if start == b"PK":
        check_zip(stream, name)
    elif start:
        declared, _ = _declared(stream)
        if declared > size or in_memory:
            require(name, declared, size)
    stream.seek(0)


def check_zip(stream: BinaryIO, name: object) -> None:
    """Refuses a zip whose members declare too much; what is no zip passes."""
    size = stream.seek(0, os.SEEK_END)
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as members:
            declared = sum(_member(members, info) for info in members.infolist())
        require(name, declared, size)
    stream.seek(0)


def _member(members: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    if not info.filename.endswith(".npy"):
        return info.file_size
    with members.open(info) as stream:
        declared, rows = _declared(stream)
    return max(declared, info.file_size, ROW * rows)


def _declared(stream: Any) -> tuple[int, int]:
    """Bytes and rows by the header of a .npy file; an item of no bytes counts as one."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0
    shape, _, kind = (read if version[0] == 1 else np.lib.format.read_array_header_2_0)(stream)
    return math.prod(shape) * max(1, kind.itemsize), shape[0] if shape else 1


def _size(number: int) -> str:
    return f"{number / 1e6:,.1f} MB" if number > 1e5 else f"{number:,} bytes"
