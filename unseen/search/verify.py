"""Is every byte of an index as it was written, and every image what was embedded? And what is it
made of?"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unseen.core.contracts import Progress
from unseen.core.uris import is_uri
from unseen.search import manifest as manifests
from unseen.search import segment as segments
from unseen.search.backends.by_name import external_backend
from unseen.search.backends.external import UnavailableError
from unseen.search.file_states import unchanged
from unseen.search.index import Index
from unseen.search.manifest import AGAIN, APPROXIMATE, DamagedError, Manifest
from unseen.search.writer import ASIDE, LOCK


def verify(path: Path, progress: Progress | None = None) -> list[str]:
    """What is wrong, one sentence each; nothing when all is well."""
    try:
        manifest = manifests.read(path)
    except ValueError as error:
        return [str(error)]
    problems = []
    folders = checksums(path, manifest)
    for done, (folder, files) in enumerate(folders.items(), start=1):
        for name, digest in files.items():
            try:
                segments.check(folder, {name: digest})
            except ValueError as error:
                problems.append(str(error))
        if progress is not None:
            progress(done, len(folders))
    try:
        return problems or _inconsistencies(Index(path, manifest))
    except DamagedError as error:  # whole files whose content was wrong when it was written
        return [str(error)]


def changed_images(
    index: Index, thorough: bool = False, progress: Progress | None = None
) -> list[str]:
    """Paths of images that are no longer what was embedded; those that are gone do not count.
    thorough: by the content of every one, and also of those at addresses."""
    result, every = [], list(index.every())
    for done, (_, metadata) in enumerate(every, start=1):
        request = thorough or not is_uri(metadata.path)
        if request and unchanged(metadata, thorough) is None:
            result.append(metadata.path)
        if progress is not None:
            progress(done, len(every))
    return list(dict.fromkeys(result))


def checksums(path: Path, manifest: Manifest) -> dict[Path, dict[str, str]]:
    """The folders of an index, the files in them and their checksums."""
    result = {path / segments.FOLDER / entry.name: entry.files for entry in manifest.segments}
    if manifest.approximate is not None:
        result[path / APPROXIMATE / manifest.approximate.name] = manifest.approximate.files
    if manifest.vanished is not None:
        result[path] = {manifest.vanished.name: manifest.vanished.sha256}
    return result


@dataclass(frozen=True)
class Info:
    """num_bytes: of vectors, thumbnails and the rest (metadata, numbers, a faiss index). recall:
    share of the ten nearest that a search finds, on so many images."""

    images: int
    labels: int
    segments: int
    size: int
    num_bytes: dict[str, int]
    backend: str
    recall: float | None
    num_queries: int


def describe(index: Index) -> Info:
    """Reads lengths of files."""
    index.require_whole()
    known, num_bytes = index.manifest, Counter[str]()
    for folder, files in checksums(index.path, known).items():
        for name in files:
            kind = {"thumbnails.bin": "thumbnails", segments.VECTORS: "vectors"}.get(name, "other")
            num_bytes[kind] += (folder / name).stat().st_size
    backend, recall, num_queries = "exact", None, 0
    if known.approximate is not None:
        faiss = known.approximate
        backend, recall, num_queries = faiss.kind, faiss.recall, faiss.num_queries
    elif known.external is not None:
        backend, recall = known.external.uri, known.external.recall or None
        num_queries = known.external.num_queries
    return Info(
        images=len(index),
        labels=len(index.labels),
        segments=len(index.segments),
        size=known.model.size,
        num_bytes=dict(num_bytes),
        backend=backend,
        recall=recall,
        num_queries=num_queries,
    )


def leftovers(path: Path) -> list[Path]:
    """Files that the manifest does not name: of a writer that was killed. The next one tidies."""
    folders = checksums(path, manifests.read(path))
    known = {folder / name for folder, files in folders.items() for name in files}
    known |= {path / manifests.NAME, path / LOCK}
    result = {file for file in path.rglob("*") if not file.is_dir()} - known
    return sorted(file for file in result if path / ASIDE not in file.parents)


def _inconsistencies(index: Index) -> list[str]:
    """Whole files that do not go together."""
    problems = []
    ids = index.ids.tolist()
    if len(set(ids)) < len(ids):
        problems.append("an id belongs to two images")
    if (index.serials[1:] <= index.serials[:-1]).any():
        problems.append("serial numbers do not rise")
    if ids and max(ids) >= index.manifest.next_id:
        problems.append("an id is higher than the manifest allows")
    for segment in index.segments:
        metadata = segment.every_metadata()
        wrong = segment.alive & ~segments.are_places(segment.vectors[:], index.manifest.model)
        problems += [
            f"{metadata[row].path}: {segments.NO_PLACE}; {AGAIN}" for row in np.flatnonzero(wrong)
        ]
    return problems + _external(index)


def _external(index: Index) -> list[str]:
    """Vectors that a store outside the folder holds otherwise than the folder does."""
    entry = index.manifest.external
    if entry is None:
        return []
    backend = external_backend(entry, index.manifest.model)
    try:
        backend.require_own_state(index.path, index.manifest.identity)
        wrong = backend.difference(index)
    except UnavailableError as error:
        return [f"{error}: its vectors were not compared"]
    return [wrong] if wrong else []
