"""Where a picture lies, in one text that can be written down and read again later:

photos/a/17.jpg                a file
s3://bucket/photos/a/17.jpg    a file at an address (`unseen.addresses`)
shards/0.tar::a/17.jpg         a picture in a tar, a Parquet or an Arrow file, here or there
"""

import os
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Protocol

from unseen import addresses
from unseen.addresses import Place, State

ITEM = "::"
_TAR = ".tar"
_opening = Lock()


class Container(Protocol):
    """A file of many pictures."""

    names: list[str]  # different from each other
    outside: dict[str, str]  # pictures that it only names the files of

    def columns(self) -> dict[str, list[str]]:
        """What it says of its pictures, in their order."""
        ...

    def num_bytes(self, name: str) -> int: ...

    def read(self, name: str) -> bytes: ...


def item(file: Place, name: str) -> str:
    """The place of a picture in a container."""
    return f"{file}{ITEM}{name}"


def is_elsewhere(place: Place | os.PathLike[str]) -> bool:
    """Whether a place is no file of this disk."""
    text = os.fspath(place)
    if not isinstance(text, str) or ":" not in text:
        return False
    return addresses.is_address(text) or (ITEM in text and not os.path.lexists(text))


def beside(folder: Place, name: str) -> Place:
    """What a line of a table in a folder names."""
    if not isinstance(folder, str) and ITEM in name and not (folder / name).exists():
        file, _, inner = name.partition(ITEM)
        return item(addresses.inside(folder, file), inner)
    return addresses.inside(folder, name)


def name_in(place: str) -> str:
    """The name of an item in its container; nothing of a place that is none."""
    return place.partition(ITEM)[2]


def seen_from(place: Place, folder: Path) -> str:
    """As a table in a folder names it; a file below the folder without it."""
    if addresses.is_address(place):
        return str(place)
    whole = Path(os.path.abspath(place))
    return (whole.relative_to(folder) if whole.is_relative_to(folder) else whole).as_posix()


def read(place: str) -> bytes:
    """The bytes of a picture that is no file of this disk."""
    file, _, name = place.partition(ITEM)
    if not name:
        return addresses.read(place)
    held = container(addresses.as_place(file))
    try:
        return held.read(name)
    except KeyError:
        raise FileNotFoundError(f"{file} holds no {name}") from None


def content(path: Path) -> bytes:
    """Of a file, or of an item of a container here."""
    return read(str(path)) if is_elsewhere(path) else path.read_bytes()


def state(place: Place) -> State:
    """Size and time of a picture; in a container, the time of the whole."""
    text = str(place)
    if not is_elsewhere(text):
        return addresses.state(Path(text))
    file, _, name = text.partition(ITEM)
    whole = addresses.state(addresses.as_place(file))
    if not name:
        return whole
    try:
        return whole._replace(num_bytes=container(addresses.as_place(file)).num_bytes(name))
    except KeyError:
        raise FileNotFoundError(f"{file} holds no {name}") from None


def exists(place: Place) -> bool:
    try:
        state(place)
    except (OSError, ValueError):
        return False
    return True


def container(file: Place) -> Container:
    """An opened file of pictures; of one that has changed since, anew."""
    stamp = addresses.state(file) if isinstance(file, Path) else None
    with _opening:  # one scan is enough for all threads
        return _container(file, stamp)


@lru_cache(maxsize=256)
def _container(file: Place, stamp: State | None) -> Container:
    if addresses.suffix(file) == _TAR:
        from unseen.data.containers.tar_shard import TarShard  # noqa: PLC0415 - what is asked for

        return TarShard(file)
    from unseen.data.containers.picture_rows import PictureRows  # noqa: PLC0415 - likewise

    return PictureRows(file)
