"""A tar file of pictures (WebDataset): where each lies in it is found once, and kept in the cache
folder; then any picture is one read of a stretch of the file, and nothing is unpacked.

Members whose names are alike up to the first dot belong together: `a/17.jpg`, `a/17.cls` (the
class) or `a/17.json` (columns by their names, `label` among them). Without either, the folder of a
picture in the tar is its class.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen import addresses
from unseen.addresses import Place
from unseen.data.pictures import stored
from unseen.data.pictures.decode import is_picture

LABEL = "label"
_CLASS = ("cls", "cls.txt")
_JSON = "json"
_MOST = 1 << 20  # bytes of a text beside a picture


class TarShard:
    """file: the tar, here or at an address."""

    def __init__(self, file: Place) -> None:
        self.file = file
        state = addresses.state(file)
        key = hashlib.sha256(f"{file} {tuple(state)}".encode()).hexdigest()[:24]
        path = stored.cache_folder() / "tars" / f"{key}.npz.sha256"
        held = stored.load(path)
        if held is None:
            held = _scanned(file)
            stored.save(path, held)
        self.names: list[str] = held["names"].tolist()
        self._places: NDArray[np.int64] = held["places"]  # [n, 2] offset, length
        self.outside: dict[str, str] = {}
        self._row = {name: row for row, name in enumerate(self.names)}
        self._columns: dict[str, list[str]] = json.loads(held["columns"].tobytes())

    def columns(self) -> dict[str, list[str]]:
        """What stands beside the pictures, by name."""
        return self._columns

    def num_bytes(self, name: str) -> int:
        return int(self._places[self._row[name], 1])

    def read(self, name: str) -> bytes:
        offset, length = self._places[self._row[name]].tolist()
        return addresses.read(self.file, offset, offset + length)


def _scanned(file: Place) -> dict[str, NDArray[Any]]:
    """One walk over the headers; only texts beside pictures are read."""
    pictures: list[tuple[str, str, int, int]] = []  # key, name, offset, length
    told: dict[str, dict[str, str]] = {}
    try:
        with addresses.reading(file) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if not member.isreg():
                    continue
                key, ending = _cut(member.name)
                if is_picture(member.name.rpartition("/")[2]):
                    pictures.append((key, member.name, member.offset_data, member.size))
                elif member.size <= _MOST and ending in (*_CLASS, _JSON):
                    text = tar.extractfile(member)
                    assert text is not None, "a plain file"
                    told.setdefault(key, {}).update(_said(ending, text.read()))
    except tarfile.TarError as error:
        raise ValueError(
            f"{file} is no whole, plain tar ({error}): a compressed one cannot be read from the "
            "middle, unpack it to .tar"
        ) from error
    if not pictures:
        raise ValueError(f"{file} holds no pictures")
    columns = _as_columns([key for key, *_ in pictures], told)
    return {
        "names": np.array([name for _, name, _, _ in pictures]),
        "places": np.array([place for *_, a, b in pictures for place in (a, b)]).reshape(-1, 2),
        "columns": np.frombuffer(json.dumps(columns).encode(), np.uint8),
    }


def _as_columns(keys: list[str], told: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    names = dict.fromkeys(name for beside in told.values() for name in beside)
    columns = {name: [told.get(key, {}).get(name, "") for key in keys] for name in names}
    if LABEL not in columns:
        folders = [key.rpartition("/")[0] for key in keys]
        columns |= {LABEL: folders} if all(folders) else {}
    return columns


def _cut(name: str) -> tuple[str, str]:
    """a/17.seg.png -> a/17, seg.png."""
    folder, slash, last = name.rpartition("/")
    head, _, ending = last.partition(".")
    return folder + slash + head, ending.lower()


def _said(ending: str, content: bytes) -> dict[str, str]:
    text = content.decode("utf-8", "replace").strip()
    if ending != _JSON:
        return {LABEL: text}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return dict(_plain(found)) if isinstance(found, dict) else {}


def _plain(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if value is None or isinstance(value, str | int | float | bool):
            yield name, "" if value is None else str(value)
