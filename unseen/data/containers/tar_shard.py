"""A tar file of images (WebDataset): where each lies in it is found once, and kept in the cache
folder; then any image is one read of a stretch of the file, and nothing is unpacked.

Members whose names are alike up to the first dot belong together: `a/17.jpg`, `a/17.cls` (the
class) or `a/17.json` (columns by their names, `label` among them). Without either, the folder of a
image in the tar is its class.
"""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.core import uris
from unseen.core.uris import Place
from unseen.data.images import array_files
from unseen.data.images.decode import is_image

LABEL = "label"
_CLASS = ("cls", "cls.txt")
_JSON = "json"
_MOST = 1 << 20  # bytes of a text beside an image


class TarShard:
    """file: the tar, here or at an address."""

    def __init__(self, file: Place) -> None:
        self.file = file
        state = uris.state(file)
        key = hashlib.sha256(f"{file} {tuple(state)}".encode()).hexdigest()[:24]
        path = array_files.cache_folder() / "tars" / f"{key}.npz.sha256"
        cached = array_files.load(path)
        if cached is None:
            cached = _scanned(file)
            array_files.save(path, cached)
        self.names: list[str] = cached["names"].tolist()
        self._places: NDArray[np.int64] = cached["places"]  # [n, 2] offset, length
        self.external_paths: dict[str, str] = {}
        self._row = {name: row for row, name in enumerate(self.names)}
        self._columns: dict[str, list[str]] = json.loads(cached["columns"].tobytes())

    def columns(self) -> dict[str, list[str]]:
        """What stands beside the images, by name."""
        return self._columns

    def num_bytes(self, name: str) -> int:
        return int(self._places[self._row[name], 1])

    def read(self, name: str) -> bytes:
        offset, length = self._places[self._row[name]].tolist()
        return uris.read(self.file, offset, offset + length)


def _scanned(file: Place) -> dict[str, NDArray[Any]]:
    """One walk over the headers; only texts beside images are read."""
    images: list[tuple[str, str, int, int]] = []  # key, name, offset, length
    beside_images: dict[str, dict[str, str]] = {}
    try:
        with uris.reading(file) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                if not member.isreg():
                    continue
                key, ending = _cut(member.name)
                if is_image(member.name.rpartition("/")[2]):
                    images.append((key, member.name, member.offset_data, member.size))
                elif member.size <= _MOST and ending in (*_CLASS, _JSON):
                    text = tar.extractfile(member)
                    assert text is not None, "a plain file"
                    beside_images.setdefault(key, {}).update(_text_columns(ending, text.read()))
    except tarfile.TarError as error:
        raise ValueError(
            f"{file} is no whole, plain tar ({error}): a compressed one cannot be read from the "
            "middle, unpack it to .tar"
        ) from error
    if not images:
        raise ValueError(f"{file} holds no images")
    columns = _as_columns([key for key, *_ in images], beside_images)
    return {
        "names": np.array([name for _, name, _, _ in images]),
        "places": np.array([place for *_, a, b in images for place in (a, b)]).reshape(-1, 2),
        "columns": np.frombuffer(json.dumps(columns).encode(), np.uint8),
    }


def _as_columns(keys: list[str], beside_images: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    names = dict.fromkeys(name for beside in beside_images.values() for name in beside)
    columns = {name: [beside_images.get(key, {}).get(name, "") for key in keys] for name in names}
    if LABEL not in columns:
        folders = [key.rpartition("/")[0] for key in keys]
        columns |= {LABEL: folders} if all(folders) else {}
    return columns


def _cut(name: str) -> tuple[str, str]:
    """a/17.seg.png -> a/17, seg.png."""
    folder, slash, last = name.rpartition("/")
    head, _, ending = last.partition(".")
    return folder + slash + head, ending.lower()


def _text_columns(ending: str, content: bytes) -> dict[str, str]:
    text = content.decode("utf-8", "replace").strip()
    if ending != _JSON:
        return {LABEL: text}
    try:
        result = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return dict(_plain(result)) if isinstance(result, dict) else {}


def _plain(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in result.items():
        if value is None or isinstance(value, str | int | float | bool):
            yield name, "" if value is None else str(value)
