"""Mending a damaged index: what is whole stays, the rest is embedded again from the images.

A segment whose files have their checksums is intact. Of another one everything that can be trusted
is used: paths and ids of its images, which are embedded again, and which of them had been removed.
What cannot be known is left out and told: a removed image never comes back by itself.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unseen.core import read_limits
from unseen.core.contracts import Progress
from unseen.core.files import Lock, refuse_links, sha256
from unseen.data.containers import locations
from unseen.runs.trained_run import Trained
from unseen.search import manifest as manifests
from unseen.search import segment as segments
from unseen.search.backends import approximate
from unseen.search.ingest import Ingested, require_same_model
from unseen.search.maintain import model_of, remake, require_files
from unseen.search.manifest import Manifest, SegmentEntry
from unseen.search.segment import ID, LINE, Metadata, Segment, copy_of
from unseen.search.writer import LOCK, Writer


@dataclass
class Repaired:
    """What became of the images.

    Args:
        intact: how many needed nothing.
        again: those that were embedded again.
        lost: what could not be saved, a sentence each.
    """

    intact: int = 0
    again: Ingested = field(default_factory=Ingested)
    lost: list[str] = field(default_factory=list)


@dataclass
class _Saved:
    keep: list[SegmentEntry] = field(default_factory=list)
    again: list[tuple[int, Metadata]] = field(default_factory=list)
    vanished: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def repair(
    path: Path,
    run: Path | None = None,
    progress: Progress | None = None,
    *,
    remove_missing: bool = False,
) -> Repaired:
    """Raises ValueError where too little is left, or the model or many images are gone."""
    refuse_links(path)
    with Lock(path / LOCK):
        manifest, lost = _manifest(path)
        writer = Writer(path, manifest)
        saved = _save(writer)
        saved.lost = lost + saved.lost
        intact = sum(entry.rows - entry.num_dead for entry in saved.keep)
        faiss = manifest.approximate
        if faiss is not None and _damaged(path / approximate.FOLDER / faiss.name, faiss.files):
            faiss = None
        again = Ingested()
        if saved.again:
            if not remove_missing:
                require_files([metadata.path for _, metadata in saved.again], path)
            model = _model(path, manifest, run)
            again = remake(
                writer,
                model,
                saved.again,
                progress,
                keep=saved.keep,
                vanished=saved.vanished,
                approximate=faiss,
            )
        else:
            writer.keep(saved.keep, saved.vanished, faiss)
            writer.refresh_backend()
    return Repaired(intact, again, saved.lost)


def _manifest(path: Path) -> tuple[Manifest, list[str]]:
    try:
        return manifests.read(path), []
    except manifests.DamagedError:
        try:
            copy = manifests.read(path, manifests.COPY)
            manifests.write(path, copy)
            return copy, ["the manifest is now its copy"]
        except manifests.DamagedError as error:
            raise ValueError(
                f"{path} cannot be repaired, its manifest and the copy of it are damaged: delete "
                "it and `unseen index build` it again"
            ) from error


def _model(path: Path, manifest: Manifest, run: Path | None) -> Trained:
    model = model_of(path, run)
    require_same_model(manifest.model, model, path)
    return model


def _save(writer: Writer) -> _Saved:
    """Segments to keep and images to embed again."""
    saved, next_id = _Saved(), writer.manifest.next_id
    try:
        saved.vanished = writer.vanished()
    except (manifests.DamagedError, ValueError):
        saved.lost.append("ids of images whose files had gone away are forgotten")
    rest: list[tuple[int | None, Metadata]] = []
    for entry in writer.manifest.segments:
        folder = writer.path / segments.FOLDER / entry.name
        damaged = _damaged(folder, entry.files)
        if (removed := _mended(writer, entry, damaged)) is not None:
            rest += _of_whole(writer, removed, saved)
        elif damaged:
            rest += _salvaged(folder, entry, damaged, saved)
        else:
            rest += _of_whole(writer, entry, saved)
    there = _paths(writer.path, saved.keep)
    for id, metadata in rest:
        if metadata.name not in there:
            there.add(metadata.name)
            saved.again.append((next_id if id is None else id, metadata))
            next_id += id is None
    return saved


def _mended(writer: Writer, entry: SegmentEntry, damaged: set[str]) -> SegmentEntry | None:
    """A segment of which only one list of removed rows is damaged, with both written again."""
    if entry.dead is None or not damaged or damaged - {entry.dead, copy_of(entry.dead)}:
        return None
    dead = _dead(writer.path / segments.FOLDER / entry.name, entry, damaged)
    return None if dead is None else _bury(writer, entry, np.array(sorted(dead)))


def _bury(writer: Writer, entry: SegmentEntry, dead: NDArray[np.int64]) -> SegmentEntry:
    return segments.bury(writer.path, entry, dead, writer.manifest.generation + 1)


def _of_whole(
    writer: Writer, entry: SegmentEntry, saved: _Saved
) -> list[tuple[int | None, Metadata]]:
    """Only rows whose vector is no place are embedded again."""
    segment = Segment(writer.path, entry)
    wrong = segment.alive & ~segments.are_places(segment.vectors[:], writer.manifest.model)
    rows = np.flatnonzero(wrong).tolist()
    if rows:
        entry = _bury(writer, entry, np.flatnonzero(~segment.alive | wrong))
    saved.keep.append(entry)
    return [(int(segment.rows[row, ID]), segment.metadata(row)) for row in rows]


def _salvaged(
    folder: Path, entry: SegmentEntry, damaged: set[str], saved: _Saved
) -> list[tuple[int | None, Metadata]]:
    """Live images of a damaged segment; without an id where that cannot be known."""
    file = folder / "images.jsonl"
    content = file.read_bytes() if file.exists() else b""
    rows = None if "rows.npy" in damaged else read_limits.load(folder / "rows.npy")
    if rows is None:
        lines = content.splitlines()
    else:
        starts = rows[:, LINE].tolist()
        ends = [*starts[1:], len(content)]
        lines = [content[start:end] for start, end in zip(starts, ends, strict=True)]
    metadata = [_parsed(line, "images.jsonl" in damaged) for line in lines]
    result = [
        (None if rows is None else int(rows[row, ID]), fact)
        for row, fact in enumerate(metadata)
        if fact is not None
    ]
    dead = _dead(folder, entry, damaged)
    if dead is None or (dead and len(lines) != entry.rows):
        saved.vanished |= {fact.path: id for id, fact in result if id is not None}
        saved.lost.append(
            f"{len(result):,} images of {folder}, of which {entry.num_dead:,} had been removed, "
            "it is not known which: all are left out, `unseen index add` adds those that are wanted"
        )
        return []
    if (lost := entry.rows - len(result)) > 0:
        saved.lost.append(
            f"up to {lost:,} images of {folder}, whose paths cannot be read: `unseen index add` "
            "adds them again"
        )
    if rows is None and result:
        saved.lost.append(
            f"the ids of {len(result) - len(dead):,} images of {folder}: they get new ones"
        )
    live = [row for row, fact in enumerate(metadata) if fact is not None]
    return [pair for row, pair in zip(live, result, strict=True) if row not in dead]


def _parsed(line: bytes, doubtful: bool) -> Metadata | None:
    """A line of a damaged file counts if the image it describes is there as it says."""
    try:
        metadata = Metadata.parsed(line)
        if doubtful:
            state = locations.state(metadata.path)
            same = (state.num_bytes, state.modified) == (metadata.num_bytes, metadata.modified)
            return metadata if same else None
    except (ValueError, TypeError, OSError):
        return None
    return metadata


def _dead(folder: Path, entry: SegmentEntry, damaged: set[str]) -> set[int] | None:
    """Rows that do not count; None where that is not known."""
    if entry.dead is None:
        return set()
    for name in (entry.dead, copy_of(entry.dead)):
        if name in entry.files and name not in damaged:
            return set(read_limits.load(folder / name).tolist())
    return None


def _damaged(folder: Path, files: dict[str, str]) -> set[str]:
    return {
        name
        for name, digest in files.items()
        if not (folder / name).is_file() or sha256(folder / name) != digest
    }


def _paths(path: Path, entries: list[SegmentEntry]) -> set[str]:
    result = set()
    for entry in entries:
        segment = Segment(path, entry)
        metadata = segment.every_metadata()
        result |= {metadata[row].name for row in np.flatnonzero(segment.alive)}
    return result
