"""Changing an index: one writer at a time, each change whole or not at all.

    with Writer.open("birds.index") as writer:
        writer.add(images)          # on the disk when it returns
        writer.remove([4, 7])

A change writes new files first and then replaces the manifest; what no manifest names any more is
tidied away. A crash in between leaves files that nobody reads; the next writer removes them.
The last small segments are made one when there are many, so that few are open.
"""

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np

from unseen.core import read_limits
from unseen.core.contracts import Progress
from unseen.core.files import Lock, flush_folder, is_aside, refuse_links, write_bytes
from unseen.search import manifest as manifests
from unseen.search import segment as segments
from unseen.search.backends import approximate
from unseen.search.backends.by_name import external_backend, renewed
from unseen.search.backends.external import (
    ExternalBackend,
    ForeignTableError,
    UnavailableError,
    log,
)
from unseen.search.index import Index
from unseen.search.manifest import (
    APPROXIMATE,
    ApproximateEntry,
    DamagedError,
    ExternalEntry,
    Manifest,
    ModelEntry,
    SegmentEntry,
    VanishedEntry,
)
from unseen.search.segment import ID, NewImage, Segment

LOCK = "lock"
ASIDE = "rebuild"  # the folder of what will take the place of rows
VANISHED = "vanished-"
# what may be tidied away where no manifest names it; anything else is somebody else's
OLD_FILE = re.compile(rf"{VANISHED}\d{{8,}}\.json|dead-\d{{8,}}\.npy")
OLD_FOLDER = re.compile(r"\d{8,}(-\d+)?|\.\d{8,}(-\d+)?\.part")
APPROXIMATE_ABOVE = 200_000  # images; up to here every search compares with all of them
MOST_ROWS = 2**18  # of a segment that is merged with others: merging holds them in memory
MOST_SMALL = 32  # smaller ones, before they are made one
MOST_DEAD = 0.2  # share of dead rows above which a segment is written anew


class Writer:
    """Holds the lock of an index. Made by `Writer.open` or `Writer.create`."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self._tidy()

    @classmethod
    @contextmanager
    def open(cls, path: Path, wait: bool = False) -> Iterator["Writer"]:
        """Raises `InUseError` while another process writes, or waits until it has ended."""
        manifests.read(path)
        with Lock(path / LOCK, wait=wait):
            yield cls(path, manifests.read(path))

    @classmethod
    @contextmanager
    def create(
        cls,
        path: Path,
        model: ModelEntry,
        first_serial: int = 1,
        first_id: int = 1,
    ) -> Iterator["Writer"]:
        """An empty index in a new or empty folder."""
        refuse_links(path)
        path.mkdir(parents=True, exist_ok=True)
        with Lock(path / LOCK):
            names = {entry.name for entry in path.iterdir()} - {LOCK}
            if not all(is_aside(name) for name in names):
                raise ValueError(f"{path} is not empty and no index: choose another folder")
            empty = Manifest(
                identity=uuid4().hex,
                model=model,
                next_serial=first_serial,
                next_id=first_id,
            )
            manifests.write(path, empty)
            yield cls(path, manifests.read(path))

    def index(self) -> Index:
        """The index as it is now."""
        return Index(self.path, self.manifest)

    def add(self, images: Sequence[NewImage]) -> list[int]:
        """Adds images; those that bring an id take the place of the one that had it. Returns
        their ids once everything is on the disk."""
        if not images:
            return []
        require_places(images, self.manifest.model)
        known, next_id = self.manifest, self.manifest.next_id
        fresh = iter(range(next_id, next_id + len(images)))
        ids = [next(fresh) if p.id is None else p.id for p in images]
        entry = segments.write(self.path, self._new_name(), images, ids, known.next_serial)
        replaced = {p.id for p in images if p.id is not None}
        self._commit(
            segments=[*self._without(replaced), entry],
            next_id=max(next(fresh, next_id + len(images)), *(id + 1 for id in ids)),
            next_serial=known.next_serial + len(images),
        )
        self._merge()
        return ids

    def remove(self, ids: Collection[int], vanished: bool = False) -> int:
        """Takes images out; returns how many there were. vanished: their files went away, and
        should these come back, they get their ids again."""
        before, removed = self._num_alive(), set(ids)
        known = {path: id for path, id in self.vanished().items() if id not in removed}
        if vanished:
            known |= {metadata.name: id for id, metadata in self.index().every() if id in removed}
        self._commit(segments=self._without(removed), vanished=self._remembered(known))
        self._merge()
        return before - self._num_alive()

    def vanished(self) -> dict[str, int]:
        """Ids of images whose files went away, by their paths."""
        entry = self.manifest.vanished
        if entry is None:
            return {}
        segments.check(self.path, {entry.name: entry.sha256})
        known: dict[str, int] = json.loads((self.path / entry.name).read_bytes())
        return known

    def take(self, other: Path, vanished: dict[str, int]) -> None:
        """The rows and the model of another index in the place of its own."""
        taken, known = manifests.read(other), self.manifest
        entries = []
        for place, entry in enumerate(taken.segments):
            name = f"{self._new_name()}-{place}"
            target = self.path / segments.FOLDER / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(
                other / segments.FOLDER / entry.name, target, copy_function=_link_or_copy
            )
            flush_folder(target)
            entries.append(entry.model_copy(update={"name": name}))
        flush_folder(self.path / segments.FOLDER)
        old = known.external
        self._commit(
            segments=entries,
            model=taken.model,
            next_id=max(known.next_id, taken.next_id),
            next_serial=max(known.next_serial, taken.next_serial),
            approximate=None,
            vanished=self._remembered(vanished),
            external=None if old is None else renewed(old),
        )
        if old is not None:
            self._drop(old)

    def use_backend(self, entry: ExternalEntry) -> None:
        """Searches go to Milvus or PostgreSQL from now on; the unreachable is refused."""
        self._external(entry).connect()
        self._commit(approximate=None, external=entry)

    def refresh_backend(
        self, progress: Progress | None = None, approximate_above: int = APPROXIMATE_ABOVE
    ) -> None:
        """Brings the store outside, or the faiss index of a large collection, in line with the
        rows."""
        index, known = self.index(), self.manifest.approximate
        if self.manifest.external is not None:
            self._bring(self.manifest.external, progress)
        elif len(index) <= approximate_above:
            if known is not None:
                self._commit(approximate=None)
        elif known is None or self._drifted(index, known):
            self._commit(approximate=approximate.make(index, self._new_name(), progress))

    def _drop(self, entry: ExternalEntry) -> None:
        """What is not this index's, or cannot be reached, stays, and nothing reads it."""
        backend = self._external(entry)
        try:
            if not backend.is_a_copys(self.path, self.manifest.identity):
                backend.drop()
        except ForeignTableError as error:
            log.warning("%s: it stays as it is", error)
        except UnavailableError:
            return

    def _bring(self, entry: ExternalEntry, progress: Progress | None) -> None:
        """What cannot be brought now stays in the folder alone, where it is searched exactly."""
        backend, identity = self._external(entry), self.manifest.identity
        try:
            if backend.is_a_copys(self.path, identity):
                backend, identity = self._external(renewed(entry)), uuid4().hex
                log.warning(
                    "%s is a copy: %s stays with the other, and this one has %s from now on",
                    *(self.path, entry.table, backend.entry.table),
                )
            claimed = backend.claimed(self.path, identity)
            self._commit(identity=identity, external=claimed)
            entry = backend.bring(self.index(), progress)
        except ForeignTableError as error:
            log.warning("%s: it stays as it is, searches are exact", error)
            return
        except UnavailableError as error:
            log.warning(
                "%s: the index has changed, %s follows with its next change", error, backend.name
            )
            return
        self._commit(external=entry)

    def _drifted(self, index: Index, known: ApproximateEntry) -> bool:
        """So much was added or removed since the faiss index was made that it is worth anew, or it
        is damaged."""
        folder = self.path / APPROXIMATE / known.name
        try:
            segments.check(folder, known.files)
        except DamagedError as error:
            log.warning("%s", error)
            return True
        covered = read_limits.load(folder / "serials.npy")
        live = index.serials[index.alive]
        still = np.isin(covered, live).sum()
        return bool(len(live) - still > MOST_DEAD * len(live) or still < 0.8 * len(covered))

    def _external(self, entry: ExternalEntry) -> ExternalBackend:
        return external_backend(entry, self.manifest.model)

    def _without(self, ids: set[int]) -> list[SegmentEntry]:
        """The segments with the rows of these ids dead."""
        if not ids:
            return list(self.manifest.segments)
        wanted = np.fromiter(ids, dtype=np.int64)
        entries = []
        for entry in self.manifest.segments:
            segment = Segment(self.path, entry)
            removed = np.isin(segment.rows[:, ID], wanted) & segment.alive
            if not removed.any():
                entries.append(entry)
                continue
            dead = np.flatnonzero(~segment.alive | removed)
            entries.append(segments.bury(self.path, entry, dead, self.manifest.generation + 1))
        return entries

    def _merge(self) -> None:
        """Makes many small segments few, and leaves out dead rows once there are many."""
        while (run := _mergeable(self.manifest.segments)) is not None:
            old = self.manifest.segments[run]
            merged = segments.merge(self.path, self._new_name(), self._opened(old))
            segments_now = list(self.manifest.segments)
            segments_now[run] = [merged] if merged.rows else []
            self._commit(segments=segments_now)

    def _remembered(self, vanished: dict[str, int]) -> VanishedEntry | None:
        if not vanished:
            return None
        name = f"{VANISHED}{self.manifest.generation + 1:08d}.json"
        digest = write_bytes(self.path / name, json.dumps(vanished, sort_keys=True).encode())
        return VanishedEntry(name=name, sha256=digest)

    def _commit(self, **changes: object) -> None:
        generation = self.manifest.generation + 1
        changed = self.manifest.model_copy(update={"generation": generation, **changes})
        manifests.write(self.path, changed)
        self.manifest = changed
        self._tidy()

    def _tidy(self) -> None:
        """Removes what the manifest does not name, if it has a name of ours: replaced files, and
        those of a crash."""
        known = {entry.name: entry.files for entry in self.manifest.segments}
        faiss = self.manifest.approximate
        vanished = self.manifest.vanished
        for file in self.path.iterdir():
            old = OLD_FILE.fullmatch(file.name) and (vanished is None or file.name != vanished.name)
            if old or is_aside(file.name):
                file.unlink()
        self._tidy_folder(segments.FOLDER, known)
        self._tidy_folder(APPROXIMATE, {faiss.name: faiss.files} if faiss else {})

    def _tidy_folder(self, name: str, known: dict[str, dict[str, str]]) -> None:
        folder = self.path / name
        if not folder.exists():
            return
        for place in folder.iterdir():
            if place.name in known:
                for file in place.iterdir():
                    if file.name not in known[place.name] and OLD_FILE.fullmatch(file.name):
                        file.unlink()
            elif OLD_FOLDER.fullmatch(place.name):
                shutil.rmtree(place)
        flush_folder(folder)

    def _new_name(self) -> str:
        return f"{self.manifest.generation + 1:08d}"

    def _opened(self, entries: list[SegmentEntry]) -> list[Segment]:
        return [Segment(self.path, entry) for entry in entries]

    def _num_alive(self) -> int:
        return sum(entry.rows - entry.num_dead for entry in self.manifest.segments)


def require_places(images: Sequence[NewImage], model: ModelEntry) -> None:
    """Raises ValueError for a vector that cannot be searched for."""
    vectors = np.stack([image.vector for image in images])
    if vectors.shape[1:] != (model.size,):
        raise ValueError(f"vectors must have {model.size} numbers, got {vectors.shape[1:]}")
    for place in np.flatnonzero(~segments.are_places(vectors, model))[:1]:
        raise ValueError(f"{images[place].metadata.path}: {segments.NO_PLACE}")


def _link_or_copy(source: str, target: str) -> None:
    """The same file under a second name, where the disk can; the first stays whole."""
    try:
        os.link(source, target)
    except OSError:
        write_bytes(Path(target), Path(source).read_bytes())


def _mergeable(entries: Sequence[SegmentEntry]) -> slice | None:
    """Segments to be written as one: one with many dead rows, or the small ones at the end."""
    for place, entry in enumerate(entries):
        if entry.num_dead > MOST_DEAD * entry.rows:
            return slice(place, place + 1)
    large = (place for place, entry in enumerate(entries) if entry.rows >= MOST_ROWS)
    first = max(large, default=-1) + 1
    return slice(first, len(entries)) if len(entries) - first > MOST_SMALL else None
