"""Files that lie elsewhere, by their address: `s3://bucket/photos/a.jpg`, `gs://`, `https://`,
`memory://`, whatever fsspec knows.

    is_address("s3://bucket/photos")       True; a path on this disk is none
    read("s3://bucket/shard.tar", 512, 900)  bytes of a file, or a stretch of it
    below("s3://bucket/photos")            the addresses of all files under it
    write("s3://bucket/v.parquet", content)  readers see the old object or the new one

All of these take paths of this disk too. A missing driver (s3fs, gcsfs) or key ends in one
sentence.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from unseen.files import replace_bytes

_SEPARATOR = "://"
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
_MARKS = ("ETag", "etag", "md5Hash", "crc32c", "checksum")

Place = Path | str  # a file of this disk, or an address


class State(NamedTuple):
    """What tells whether a file is still the same."""

    num_bytes: int
    modified: int  # nanoseconds
    mark: int = 0  # of its content, where the store has one


def is_address(place: Place) -> bool:
    return isinstance(place, str) and _SEPARATOR in place


def as_place(text: Place) -> Place:
    """What a user's word stands for."""
    return text if is_address(text) else Path(text)


def inside(folder: Place, name: str) -> Place:
    """A file of a folder; a name that says all by itself stays what it is."""
    if is_address(name):
        return name
    return f"{folder.rstrip('/')}/{name}" if isinstance(folder, str) else folder / name


def parent(place: Place) -> Place:
    return place.rstrip("/").rpartition("/")[0] if isinstance(place, str) else place.parent


def name_of(place: Place) -> str:
    return place.rstrip("/").rpartition("/")[2] if isinstance(place, str) else place.name


def suffix(place: Place) -> str:
    """In small letters."""
    return Path(name_of(place)).suffix.lower()


def read(place: Place, start: int | None = None, end: int | None = None) -> bytes:
    """The bytes of a file, or those from `start` to `end`."""
    if isinstance(place, Path):
        with place.open("rb") as file:
            file.seek(start or 0)
            return file.read(-1 if end is None else end - (start or 0))
    with _naming(place) as (store, path):
        content: bytes = store.cat_file(path, start=start, end=end)
    return content


@contextmanager
def reading(place: Place) -> Iterator[Any]:
    """An open file to read from, here or there."""
    if isinstance(place, Path):
        with place.open("rb") as file:
            yield file
        return
    with _naming(place) as (store, path), store.open(path, "rb") as file:
        yield file


def write(place: Place, content: bytes) -> None:
    """The whole file or none; stores of objects do so by themselves."""
    if isinstance(place, Path):
        replace_bytes(place, content)
        return
    with _naming(place) as (store, path):
        store.pipe_file(path, content)


def exists(place: Place) -> bool:
    if isinstance(place, Path):
        return place.exists()
    with _naming(place) as (store, path):
        return bool(store.exists(path))


def state(place: Place) -> State:
    if isinstance(place, Path):
        found = place.stat()
        return State(found.st_size, found.st_mtime_ns)
    with _naming(place) as (store, path):
        info = store.info(path)
    marks = [str(info[key]) for key in _MARKS if info.get(key)]
    mark = hashlib.sha256("".join(marks).encode()).digest()[:7] if marks else b""
    time = next((info[key] for key in _TIMES if info.get(key)), 0)
    return State(int(info.get("size") or 0), _nanoseconds(time), int.from_bytes(mark))


def below(folder: Place) -> list[str]:
    """The addresses of all files under one, sorted; hidden ones are passed over."""
    address = str(folder).rstrip("/")
    with _naming(address) as (store, path):
        head = path.rstrip("/") + "/"
        found = [each.removeprefix(head) for each in store.find(path)]
    kept = [name for name in found if not any(p.startswith(".") for p in name.split("/"))]
    return [f"{address}/{name}" for name in sorted(kept)]


def matching(pattern: str) -> list[str]:
    """The addresses that a pattern with * stands for, sorted."""
    with _naming(pattern) as (store, path):
        return sorted(store.unstrip_protocol(each) for each in store.glob(path))


def _nanoseconds(time: Any) -> int:
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return int((time.timestamp() if isinstance(time, datetime) else float(time)) * 1e9)


@contextmanager
def _naming(address: str) -> Iterator[tuple[Any, str]]:
    """The store of an address and the path there; whatever goes wrong names the address."""
    from fsspec.core import url_to_fs  # noqa: PLC0415 - most work is done on this disk

    try:
        store, path = url_to_fs(address)
    except (ImportError, ValueError) as error:  # no driver, or no such protocol
        raise ValueError(f"{address} cannot be opened: {error}") from error
    try:
        yield store, path
    except FileNotFoundError as error:
        raise FileNotFoundError(f"nothing lies at {address}") from error
    except ValueError:
        raise
    except OSError as error:
        raise OSError(error.errno or 0, str(error.strerror or error), address) from error
    except Exception as error:  # drivers have classes of their own for refusals
        raise OSError(0, f"{type(error).__name__}: {error}", address) from error
