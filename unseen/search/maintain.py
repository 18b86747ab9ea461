"""Keeping an index: which model, which images, in line with the files, made anew."""

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from unseen.core.contracts import Progress
from unseen.core.names import by_front_end
from unseen.data.containers import locations
from unseen.runs.trained_run import Trained
from unseen.search import manifest as manifests
from unseen.search.image_sources import Source, source_of
from unseen.search.index import Index
from unseen.search.ingest import Ingested, ingest, model_entry
from unseen.search.manifest import ModelEntry
from unseen.search.segment import Metadata
from unseen.search.verify import verify
from unseen.search.writer import ASIDE, Writer

MOST_MISSING = 0.1  # share of the files that may be gone without anybody having said so


def model_of(index: Path, run: Path | None = None) -> Trained:
    """The model an index was made with, from where it was or where `run` says it is now; of nested
    sizes the one of the index."""
    entry = manifests.read(index).model
    place = run or Path(entry.run)
    if not place.exists():
        raise ValueError(
            f"the run of {index} is not at {place}: say where with " + by_front_end("--run", "run")
        )
    model = Trained.open(place)
    return model.at(entry.size if entry.size in model.config.model.nested_sizes else None)


def named(index: Index, words: Sequence[str]) -> list[int]:
    """Ids of images by id, path, or folder above them; every word must mean something."""
    by_path: dict[str, list[int]] = defaultdict(list)  # parts of one image share it
    for id, metadata in index.every():
        by_path[metadata.path].append(id)
    known = set(index.ids.tolist())
    result: list[int] = []
    for word in words:
        path = word if word in by_path else str(Path(word).resolve())
        above = path + os.sep
        inside = [id for name, ids in by_path.items() if name.startswith(above) for id in ids]
        if path in by_path:
            result += by_path[path]
        elif word.isdigit() and int(word) in known:
            result.append(int(word))
        elif inside:
            result += inside
        else:
            raise ValueError(f"{index.path} holds no image {word}")
    return result


def relabel(writer: Writer, ids: Collection[int], label: str | None) -> int:
    """Gives images a label, or takes it from them (None); returns how many had another. Vectors,
    thumbnails and files stay as they are."""
    index = writer.index()
    changed = [id for id in dict.fromkeys(ids) if index.metadata(id).label != label]
    rows = [index.row(id) for id in changed]
    rows = [replace(row, metadata=replace(row.metadata, label=label)) for row in rows]
    writer.add(rows)
    return len(rows)


def require_files(paths: Sequence[str], index: Path) -> None:
    """Raises ValueError when so many files are gone that a disk may not be mounted: more than a
    tenth, or all below a folder that is now empty."""
    missing = [path for path in paths if not locations.exists(path)]
    here = [Path(path) for path in missing if not locations.is_elsewhere(path)]
    empty = next(
        (folder for folder in map(_nearest_folder, here) if not any(folder.iterdir())), None
    )
    if len(missing) <= MOST_MISSING * len(paths) and empty is None:
        return
    where = f"{empty} is empty" if empty is not None else f"{missing[0]} is one"
    remove = by_front_end("--remove-missing", "remove_missing=True")
    raise ValueError(
        f"{len(missing):,} of {len(paths):,} files of {index} are gone ({where}): is a disk not "
        f"mounted? If they are meant to go, {remove}"
    )


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.is_dir())


def update(
    writer: Writer,
    model: Trained,
    new: Sequence[Source],
    progress: Progress | None = None,
    *,
    remove_missing: bool = False,
    thorough: bool = False,
) -> tuple[int, Ingested]:
    """Removes images whose file is gone, renews those whose file or label changed, adds new
    ones; returns how many were removed and what became of the rest. thorough: every file's content
    is compared."""
    known = [(id, source_of(metadata)) for id, metadata in writer.index().every()]
    if not remove_missing:
        require_files([str(source.path) for _, source in known], writer.path)
    lost = {source.path for _, source in known if not locations.exists(source.path)}
    removed = [id for id, source in known if source.path in lost]
    sources = {source.name: source for _, source in known if source.path not in lost}
    for source in new:
        if source.label is not None or source.name not in sources:
            sources[source.name] = source
    every = list(sources.values())
    done = ingest(writer, model, every, progress, replace_changed=True, thorough=thorough)
    return writer.remove(removed, vanished=True) if removed else 0, done


def rebuild(
    path: Path, model: Trained, progress: Progress | None = None, *, remove_missing: bool = False
) -> Ingested:
    """The same images with the vectors of another model, under their old ids: made aside, then
    put in the place of the old ones at once. Goes on where a stopped rebuild was."""
    aside, entry = path / ASIDE, model_entry(model)
    with Writer.open(path) as writer:  # nobody else writes meanwhile
        images = list(writer.index().every())
        if not remove_missing:
            require_files([str(source_of(metadata).path) for _, metadata in images], path)
        if not (resumes := _can_resume(aside, entry)):
            shutil.rmtree(aside, ignore_errors=True)
        open_aside = Writer.open(aside) if resumes else None
        serial = writer.manifest.next_serial
        with open_aside or Writer.create(aside, entry, serial) as other:
            done = _embed_under_ids(other, model, images, progress)
            there = set(other.index().ids.tolist())
        left_out = {metadata.name: id for id, metadata in images if id not in there}
        writer.take(aside, writer.vanished() | left_out)
        writer.refresh_backend()
        shutil.rmtree(aside)
    return done


def _embed_under_ids(
    writer: Writer,
    model: Trained,
    images: Sequence[tuple[int, Metadata]],
    progress: Progress | None,
) -> Ingested:
    wanted = {id: (metadata.name, metadata.label) for id, metadata in images}
    made = [(id, (metadata.name, metadata.label)) for id, metadata in writer.index().every()]
    # removed, or put in anew, since this was begun: it stays so
    if stale := [id for id, message in made if wanted.get(id) != message]:
        writer.remove(stale)
    sources = [source_of(metadata) for _, metadata in images]
    ids = {metadata.name: id for id, metadata in images}
    return ingest(writer, model, sources, progress, replace_changed=True, ids=ids)


def _can_resume(aside: Path, entry: ModelEntry) -> bool:
    """Whether a stopped one left rows that can be used: whole, and of this model."""
    is_index = (aside / manifests.NAME).exists()
    return is_index and not verify(aside) and manifests.read(aside).model == entry
