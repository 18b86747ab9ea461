"""What an item holds, in 32 bytes. Files are read once: what was read is kept in the cache folder.

A digest that was kept is believed as long as the file's size and both its times (of its content and
of its entry in the folder, which no program sets back) are the same. A file that had just been
written when it was read is read again: it could change within the same tick of the clock.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.addresses import Place
from unseen.contracts import Progress, UnreadablePictureError
from unseen.data.containers import places
from unseen.data.pictures import stored
from unseen.data.pictures.decode import check
from unseen.data.pictures.duplicates import digest
from unseen.data.pictures.prefetch import prefetch

Stamp = tuple[int, int, int]  # size, time of the content, time of the entry (both ns)

_THREADS = 8
_YOUNG = 2_000_000_000  # ns: the coarsest clock of a file system ticks so often
_ROW = np.dtype([("path", "V32"), ("stamp", "<i8", 3), ("digest", "V32")])


def numbered(names: Iterable[str]) -> list[str]:
    """The names, the second of a kind with a 2 behind it, and so on."""
    times: Counter[str] = Counter()
    found = []
    for name in names:
        times[name] += 1
        found.append(name if times[name] == 1 else f"{name} ({times[name]})")
    return found


def row_ids(rows: int) -> list[str]:
    return [f"row {row}" for row in range(rows)]


def row_digests(rows: NDArray[Any]) -> list[bytes]:
    """Of each row's numbers, their kind and shape."""
    kind = hashlib.sha256(f"{rows.dtype.str} {rows.shape[1:]}".encode())
    found = []
    for row in np.ascontiguousarray(rows):
        one = kind.copy()
        one.update(row.tobytes())
        found.append(one.digest())
    return found


def file_digests(
    root: Place, paths: Sequence[Place], progress: Progress | None = None
) -> list[bytes]:
    """SHA-256 of each file; of one that cannot be read, of its name. `root`: whose cache it is."""
    held = _Kept(root)
    names = [_whole(path) for path in paths]
    found = [held.known(name) for name in names]
    unknown = [place for place, known in enumerate(found) if known is None]
    read = prefetch(lambda place: _read(names[place]), unknown, _THREADS)
    for done, (place, (stamp, content)) in enumerate(zip(unknown, read, strict=True), start=1):
        found[place] = content
        held.keep(names[place], stamp, content)
        if progress is not None:
            progress(done, len(unknown))
    if unknown:
        held.write()
    return [content for content in found if content is not None]


def examined(
    root: Place, paths: Sequence[Place], progress: Progress | None = None
) -> list[UnreadablePictureError]:
    """What is wrong with pictures that lie elsewhere. What is read for it is kept as a digest, and
    believed as long as the place says that nothing has changed."""
    held = _Kept(root)
    unknown = [path for path in paths if held.known(_whole(path)) is None]
    problems = []
    for done, (path, found) in enumerate(
        zip(unknown, prefetch(_examine, unknown, _THREADS), strict=True), start=1
    ):
        if isinstance(found, UnreadablePictureError):
            problems.append(found)
        else:
            held.keep(_whole(path), *found)
        if progress is not None:
            progress(done, len(unknown))
    if unknown:
        held.write()
    return problems


def _examine(path: Place) -> tuple[Stamp | None, bytes] | UnreadablePictureError:
    try:
        stamp = _stamp(_whole(path))
        content = places.read(path) if isinstance(path, str) else path.read_bytes()
        check(content)
    except UnreadablePictureError as error:
        return UnreadablePictureError(path, error.reason)
    except OSError as error:
        return UnreadablePictureError(path, str(error.strerror or error).lower())
    return stamp, hashlib.sha256(content).digest()


def learn(root: Place, contents: dict[Place, bytes]) -> None:
    """Keeps digests that were made on another occasion, whatever was kept before."""
    held = _Kept(root)
    for path, content in contents.items():
        name = _whole(path)
        held.keep(name, _stamp(name), content)
    held.write()


class _Kept:
    """The digests of the files below a folder that are known from before."""

    def __init__(self, root: Place) -> None:
        name = hashlib.sha256(os.fsencode(_whole(root))).hexdigest()[:24]
        self._path = stored.cache_folder() / "digests" / f"{name}.npz.sha256"
        self._rows: dict[bytes, tuple[Stamp, bytes]] = {}
        rows = (stored.load(self._path) or {}).get("rows", np.zeros(0, _ROW))
        columns = (rows[name].tolist() for name in ("path", "stamp", "digest"))
        for key, stamp, content in zip(*columns, strict=True):
            self._rows[key] = (tuple(stamp), content)

    def known(self, name: str) -> bytes | None:
        stamp, content = self._rows.get(_key(name), (None, None))
        return content if stamp is not None and stamp == _stamp(name) else None

    def keep(self, name: str, stamp: Stamp | None, content: bytes) -> None:
        if stamp is None or time.time_ns() - max(stamp[1:]) < _YOUNG:
            self._rows.pop(_key(name), None)
        else:
            self._rows[_key(name)] = (stamp, content)

    def write(self) -> None:
        rows = [(key, stamp, content) for key, (stamp, content) in self._rows.items()]
        with suppress(OSError):  # a cache that cannot be written costs a reading, not the run
            stored.save(self._path, {"rows": np.array(rows, _ROW)})


def _read(name: str) -> tuple[Stamp | None, bytes]:
    """The stamp from before reading: what changes meanwhile is read again."""
    try:
        stamp = _stamp(name)
        if places.is_elsewhere(name):
            return stamp, hashlib.sha256(places.read(name)).digest()
        return stamp, digest(Path(name))
    except OSError:
        return None, hashlib.sha256(b"cannot be read: " + os.fsencode(name)).digest()


def _whole(place: Place) -> str:
    return str(place) if places.is_elsewhere(place) else os.path.abspath(place)


def _stamp(name: str) -> Stamp | None:
    try:
        if places.is_elsewhere(name):
            num_bytes, modified, mark = places.state(name)
            return num_bytes ^ mark, modified, modified
        found = os.stat(name)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _key(name: str) -> bytes:
    return hashlib.sha256(os.fsencode(name)).digest()
