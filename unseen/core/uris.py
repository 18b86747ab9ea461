"""Files by their URI: `s3://bucket/photos/a.jpg`, `gs://`, `https://`, `hf://`, `file://`. Other
protocols are refused: a table that somebody sent may name them.

    is_uri("s3://bucket/photos")       True; a path on this disk is none
    read("s3://bucket/shard.tar", 512, 900)  bytes of a file, or a stretch of it
    below("s3://bucket/photos")            the URIs of all files under it
    write("s3://bucket/v.parquet", content)  readers see the old object or the new one
    with remote_rows():                    rows of a table here may name files elsewhere

All of these take paths of this disk too. A missing driver (s3fs, gcsfs) or key ends in one
sentence.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from unseen.core.files import replace_bytes

PROTOCOLS = ("file", "s3", "gs", "https", "hf")
REMOTE_VARIABLE = "UNSEEN_ALLOW_REMOTE"  # processes that this one starts do as it does
_SEPARATOR = "://"
_CHAIN = "::"  # of fsspec, in which one protocol asks another
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
_MARKS = ("ETag", "etag", "md5Hash", "crc32c", "checksum")

Place = Path | str  # a file of this disk, or a URI


class State(NamedTuple):
    """What tells whether a file is still the same."""

    num_bytes: int
    modified: int  # nanoseconds
    mark: int = 0  # of its content, where the file system has one; here, of its inode and ctime


class ClosedError(OSError, ValueError):
    """A URI that is not opened, or that nothing here can open."""


def protocol(uri: str) -> str:
    """Of a URI, `file` of a path; one that is not read is refused."""
    name = uri.partition(_SEPARATOR)[0] if is_uri(uri) else "file"
    if name not in PROTOCOLS:
        readable = ", ".join(f"{each}://" for each in PROTOCOLS)
        raise ClosedError(f"{uri} cannot be opened: URIs begin with {readable}")
    return name


def is_remote(place: Place) -> bool:
    """Whether it lies on another machine."""
    return isinstance(place, str) and protocol(place) != "file"


@contextmanager
def remote_rows(allowed: bool = True) -> Iterator[None]:
    """Rows of tables on this disk may name files elsewhere while the block runs.

    Example: with remote_rows(): Table("photos.csv")
    """
    before = os.environ.get(REMOTE_VARIABLE)
    if allowed:
        os.environ[REMOTE_VARIABLE] = "1"
    try:
        yield
    finally:
        if allowed and before is None:
            del os.environ[REMOTE_VARIABLE]


def allows_remote_rows() -> bool:
    return os.environ.get(REMOTE_VARIABLE) == "1"


def is_uri(place: Place) -> bool:
    return isinstance(place, str) and _SEPARATOR in place


def as_place(text: Place) -> Place:
    """What a user's word stands for."""
    return text if is_uri(text) else Path(text)


def inside(folder: Place, name: str) -> Place:
    """A file of a folder; a name that says all by itself stays what it is."""
    if is_uri(name):
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
    with _naming(place) as (file_system, path):
        content: bytes = file_system.cat_file(path, start=start, end=end)
    return content


@contextmanager
def reading(place: Place) -> Iterator[Any]:
    """An open file to read from, here or there."""
    if isinstance(place, Path):
        with place.open("rb") as file:
            yield file
        return
    with _naming(place) as (file_system, path), file_system.open(path, "rb") as file:
        yield file


def write(place: Place, content: bytes) -> None:
    """The whole file or none; object stores do so by themselves."""
    if isinstance(place, Path):
        replace_bytes(place, content)
        return
    with _naming(place) as (file_system, path):
        file_system.pipe_file(path, content)


def exists(place: Place) -> bool:
    if isinstance(place, Path):
        return place.exists()
    with _naming(place) as (file_system, path):
        return bool(file_system.exists(path))


def state(place: Place) -> State:
    if isinstance(place, Path):
        result = place.stat()
        entry = _mark(f"{result.st_ino} {result.st_ctime_ns}")  # no program sets these back
        return State(result.st_size, result.st_mtime_ns, entry)
    with _naming(place) as (file_system, path):
        info = file_system.info(path)
    marks = [str(info[key]) for key in _MARKS if info.get(key)]
    time = next((info[key] for key in _TIMES if info.get(key)), 0)
    return State(
        int(info.get("size") or 0), _nanoseconds(time), _mark("".join(marks)) if marks else 0
    )


def below(folder: Place) -> list[str]:
    """The URIs of all files under one, sorted; hidden ones are passed over."""
    uri = str(folder).rstrip("/")
    with _naming(uri) as (file_system, path):
        head = path.rstrip("/") + "/"
        result = [each.removeprefix(head) for each in file_system.find(path)]
    visible = [name for name in result if not any(p.startswith(".") for p in name.split("/"))]
    return [f"{uri}/{name}" for name in sorted(visible)]


def matching(pattern: str) -> list[str]:
    """The URIs that a pattern with * stands for, sorted."""
    with _naming(pattern) as (file_system, path):
        return sorted(file_system.unstrip_protocol(each) for each in file_system.glob(path))


def _mark(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def _nanoseconds(time: Any) -> int:
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return int((time.timestamp() if isinstance(time, datetime) else float(time)) * 1e9)


@contextmanager
def _naming(uri: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URI and the path there; whatever goes wrong names the URI."""
    from fsspec.core import url_to_fs  # noqa: PLC0415 - most work is done on this disk

    protocol(uri)
    if _CHAIN in uri:
        raise ClosedError(f"{uri} cannot be opened: it names several places")
    try:
        file_system, path = url_to_fs(uri)
    except Exception as error:  # no driver, no key, or what a driver calls it
        raise ClosedError(f"{uri} cannot be opened: {error}") from error
    try:
        yield file_system, path
    except FileNotFoundError as error:
        raise FileNotFoundError(f"nothing lies at {uri}") from error
    except ValueError:
        raise
    except OSError as error:
        raise OSError(error.errno or 0, str(error.strerror or error), uri) from error
    except Exception as error:  # drivers have classes of their own for refusals
        raise OSError(0, f"{type(error).__name__}: {error}", uri) from error
