"""Where an image lies, in one text that can be written down and read again later:

photos/a/17.jpg                a file
s3://bucket/photos/a/17.jpg    a file at an address (`unseen.core.uris`)
shards/0.tar::a/17.jpg         an image in a tar, a Parquet or an Arrow file, here or there
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Protocol

from unseen.core import uris
from unseen.core.names import by_front_end
from unseen.core.uris import Place, State

ITEM = "::"
_TAR = ".tar"
_opening = Lock()


class Container(Protocol):
    """A file of many images."""

    names: list[str]  # different from each other
    external_paths: dict[str, str]  # images that it only names the files of

    def columns(self) -> dict[str, list[str]]:
        """What it says of its images, in their order."""
        ...

    def num_bytes(self, name: str) -> int: ...

    def read(self, name: str) -> bytes: ...


def item(file: Place, name: str) -> str:
    """The place of an image in a container."""
    return f"{file}{ITEM}{name}"


def is_elsewhere(place: Place | os.PathLike[str]) -> bool:
    """Whether a place is no file of this disk."""
    text = os.fspath(place)
    if not isinstance(text, str) or ":" not in text:
        return False
    return uris.is_uri(text) or (ITEM in text and not os.path.lexists(text))


def beside(folder: Place, name: str) -> Place:
    """What a line of a table in a folder names."""
    if not isinstance(folder, str) and ITEM in name and not (folder / name).exists():
        file, _, inner = name.partition(ITEM)
        return item(uris.inside(folder, file), inner)
    return uris.inside(folder, name)


def rows_of(
    table: Place, names: Sequence[str], folder: Place | None = None, first: int = 1
) -> list[Place]:
    """What the rows of a table name. A row that may not be read is refused with its number, counted
    from `first`: one of an unknown protocol, or one that lies elsewhere where the table does not,
    unless the user allows it (`addresses.remote_rows`). `folder`: where paths begin."""
    folder = uris.parent(table) if folder is None else folder
    open_to_all = uris.is_remote(table)
    result = []
    for row, name in enumerate(names, start=first):
        if "://" in name or name.partition(":")[0] in uris.PROTOCOLS:
            try:
                file = _file_of(folder, name)
                if not open_to_all:
                    _require_allowed(file, name, "table")
            except ValueError as error:
                raise ValueError(f"{table}, row {row}: {error}") from None
        result.append(beside(folder, name))
    return result


def of_index(path: str) -> Place:
    """What an index names, to be read. A file elsewhere is refused unless the user allows it:
    whoever made the index chose it."""
    place = path if is_elsewhere(path) else Path(path)
    _require_allowed(place, path, "index")
    return place


def _require_allowed(place: Place, name: str, listed_by: str) -> None:
    if uris.is_remote(place) and not uris.allows_remote_rows():
        raise ValueError(
            f"{name} lies elsewhere, and the {listed_by} does not: "
            f"{by_front_end('add --allow-remote', 'pass allow_remote=True')} to connect "
            "to whatever it names"
        )


def _file_of(folder: Place, name: str) -> Place:
    """The file that a row names, or the container of what it names; what only looks like a URI is
    refused."""
    file = name.partition(ITEM)[0]
    if uris.is_uri(file):
        return file
    place = uris.inside(folder, file)
    if isinstance(place, Path) and not place.exists():
        raise ValueError(f"{name} is neither a file nor a URI such as https://host/a.jpg")
    return place


def name_in(place: str) -> str:
    """The name of an item in its container; nothing of a place that is none."""
    return place.partition(ITEM)[2]


def seen_from(place: Place, folder: Path) -> str:
    """As a table in a folder names it; a file below the folder without it."""
    if uris.is_uri(place):
        return str(place)
    whole = Path(os.path.abspath(place))
    return (whole.relative_to(folder) if whole.is_relative_to(folder) else whole).as_posix()


def read(place: str) -> bytes:
    """The bytes of an image that is no file of this disk."""
    file, _, name = place.partition(ITEM)
    if not name:
        return uris.read(place)
    opened = container(uris.as_place(file))
    try:
        return opened.read(name)
    except KeyError:
        raise FileNotFoundError(f"{file} holds no {name}") from None


def state(place: Place) -> State:
    """Size and time of an image; in a container, the time of the whole."""
    text = str(place)
    if not is_elsewhere(text):
        return uris.state(Path(text))
    file, _, name = text.partition(ITEM)
    whole = uris.state(uris.as_place(file))
    if not name:
        return whole
    try:
        return whole._replace(num_bytes=container(uris.as_place(file)).num_bytes(name))
    except KeyError:
        raise FileNotFoundError(f"{file} holds no {name}") from None


def exists(place: Place) -> bool:
    try:
        state(place)
    except (OSError, ValueError):
        return False
    return True


def container(file: Place) -> Container:
    """An opened file of images; of one that has changed since, anew."""
    stamp = uris.state(file) if isinstance(file, Path) else None
    with _opening:  # one scan is enough for all threads
        return _container(file, stamp)


@lru_cache(maxsize=256)
def _container(file: Place, stamp: State | None) -> Container:
    if uris.suffix(file) == _TAR:
        from unseen.data.containers.tar_shard import TarShard  # noqa: PLC0415 - what is asked for

        return TarShard(file)
    from unseen.data.containers.image_rows import ImageRows  # noqa: PLC0415 - likewise

    return ImageRows(file)
