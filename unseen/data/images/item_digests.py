"""What an item holds, in 32 bytes. Files are read once: what was read is kept in the cache folder.

A digest that was kept is believed as long as the file's size and both its times (of its content and
of its entry in the folder, which no program sets back) are the same. A file that had just been
written when it was read is read again: it could change within the same tick of the clock.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.core.contracts import Progress
from unseen.core.uris import Place
from unseen.data.containers import locations
from unseen.data.images import array_files
from unseen.data.images.decode import UnreadableImageError, check
from unseen.data.images.duplicates import digest
from unseen.data.images.prefetch import results_of

Stamp = tuple[int, int, int]  # size, time of the content, time of the entry (both ns)
_Read = tuple[Stamp | None, bytes] | UnreadableImageError

_THREADS = 8
_YOUNG = 2_000_000_000  # ns: the coarsest clock of a file system ticks so often
_ROW = np.dtype([("path", "V32"), ("stamp", "<i8", 3), ("digest", "V32")])


def numbered(names: Iterable[str]) -> list[str]:
    """The names, the second of a kind with a 2 behind it, and so on."""
    times: Counter[str] = Counter()
    result = []
    for name in names:
        times[name] += 1
        result.append(name if times[name] == 1 else f"{name} ({times[name]})")
    return result


def row_ids(rows: int) -> list[str]:
    return [f"row {row}" for row in range(rows)]


def row_digests(rows: NDArray[Any]) -> list[bytes]:
    """Of each row's numbers, their kind and shape."""
    kind = hashlib.sha256(f"{rows.dtype.str} {rows.shape[1:]}".encode())
    result = []
    for row in np.ascontiguousarray(rows):
        one = kind.copy()
        one.update(row.tobytes())
        result.append(one.digest())
    return result


def file_digests(
    root: Place, paths: Sequence[Place], progress: Progress | None = None
) -> list[bytes]:
    """SHA-256 of each file; of one that cannot be read, of its name. `root`: whose cache it is."""
    results = _read_unknown(root, paths, _digest, progress)
    return [result for result in results if isinstance(result, bytes)]


def examined(
    root: Place, paths: Sequence[Place], progress: Progress | None = None
) -> list[UnreadableImageError]:
    """What is wrong with images that lie elsewhere. What is read for it is cached as a digest, and
    believed as long as the place says that nothing has changed."""
    results = _read_unknown(root, paths, _examine, progress)
    return [result for result in results if isinstance(result, UnreadableImageError)]


def _read_unknown(
    root: Place, paths: Sequence[Place], read: Callable[[Place], _Read], progress: Progress | None
) -> list[bytes | UnreadableImageError]:
    """The digest of each file, or what is wrong with it; only files whose digest is not cached are
    read."""
    cache = _DigestCache(root)
    results: list[Any] = [cache.known(_whole(path)) for path in paths]
    unknown = [place for place, known in enumerate(results) if known is None]
    contents = results_of(read, [paths[place] for place in unknown], _THREADS, progress)
    for place, content in zip(unknown, contents, strict=True):
        if isinstance(content, UnreadableImageError):
            results[place] = content
        else:
            stamp, results[place] = content
            cache.keep(_whole(paths[place]), stamp, results[place])
    if unknown:
        cache.write()
    return results


def _examine(path: Place) -> _Read:
    try:
        stamp = _stamp(_whole(path))
        content = locations.read(path) if isinstance(path, str) else path.read_bytes()
        check(content)
    except UnreadableImageError as error:
        return UnreadableImageError(path, error.reason)
    except OSError as error:
        return UnreadableImageError(path, str(error.strerror or error).lower())
    return stamp, hashlib.sha256(content).digest()


def learn(root: Place, contents: dict[Place, bytes]) -> None:
    """Keeps digests that were made on another occasion, whatever was kept before."""
    cache = _DigestCache(root)
    for path, content in contents.items():
        name = _whole(path)
        cache.keep(name, _stamp(name), content)
    cache.write()


class _DigestCache:
    """The digests of the files below a folder that are known from before."""

    def __init__(self, root: Place) -> None:
        name = hashlib.sha256(os.fsencode(_whole(root))).hexdigest()[:24]
        self._path = array_files.cache_folder() / "digests" / f"{name}.npz.sha256"
        self._rows: dict[bytes, tuple[Stamp, bytes]] = {}
        rows = (array_files.load(self._path) or {}).get("rows", np.zeros(0, _ROW))
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
            array_files.save(self._path, {"rows": np.array(rows, _ROW)})


def _digest(path: Place) -> _Read:
    """The stamp from before reading: what changes meanwhile is read again."""
    name = _whole(path)
    try:
        stamp = _stamp(name)
        if locations.is_elsewhere(name):
            return stamp, hashlib.sha256(locations.read(name)).digest()
        return stamp, digest(Path(name))
    except OSError:
        return None, hashlib.sha256(b"cannot be read: " + os.fsencode(name)).digest()


def _whole(place: Place) -> str:
    return str(place) if locations.is_elsewhere(place) else os.path.abspath(place)


def _stamp(name: str) -> Stamp | None:
    try:
        if locations.is_elsewhere(name):
            num_bytes, modified, mark = locations.state(name)
            return num_bytes ^ mark, modified, modified
        result = os.stat(name)
    except OSError:
        return None
    return result.st_size, result.st_mtime_ns, result.st_ctime_ns


def _key(name: str) -> bytes:
    return hashlib.sha256(os.fsencode(name)).digest()
