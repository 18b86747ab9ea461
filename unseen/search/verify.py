"""Is every byte of an index as it was written? Reads all of it."""

from pathlib import Path

import numpy as np

from unseen.contracts import Progress
from unseen.search import manifest as manifests
from unseen.search import segment as segments
from unseen.search.index import Index
from unseen.search.manifest import DamagedError, Manifest
from unseen.search.stores import approximate
from unseen.search.stores.named import outside
from unseen.search.stores.outside import UnavailableError
from unseen.search.writer import ASIDE, LOCK


def verify(path: Path, progress: Progress | None = None) -> list[str]:
    """What is wrong, one sentence each; nothing when all is well."""
    try:
        manifest = manifests.read(path)
        if (path / manifests.COPY).exists():  # version 0.1 made none
            manifests.read(path, manifests.COPY)
    except ValueError as error:
        return [str(error)]
    problems = []
    folders = parts(path, manifest)
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


def parts(path: Path, manifest: Manifest) -> dict[Path, dict[str, str]]:
    """The folders of an index, the files in them and their checksums."""
    found = {path / segments.FOLDER / entry.name: entry.files for entry in manifest.segments}
    if manifest.approximate is not None:
        found[path / approximate.FOLDER / manifest.approximate.name] = manifest.approximate.files
    if manifest.vanished is not None:
        found[path] = {manifest.vanished.name: manifest.vanished.sha256}
    return found


def leftovers(path: Path) -> list[Path]:
    """Files that the manifest does not name: of a writer that was killed. The next one tidies."""
    folders = parts(path, manifests.read(path))
    known = {folder / name for folder, files in folders.items() for name in files}
    known |= {path / manifests.NAME, path / manifests.COPY, path / LOCK}
    found = {file for file in path.rglob("*") if not file.is_dir()} - known
    return sorted(file for file in found if path / ASIDE not in file.parents)


def _inconsistencies(index: Index) -> list[str]:
    """Whole files that do not go together."""
    problems = []
    ids = index.ids.tolist()
    if len(set(ids)) < len(ids):
        problems.append("an id belongs to two pictures")
    if (index.serials[1:] <= index.serials[:-1]).any():
        problems.append("serial numbers do not rise")
    if ids and max(ids) >= index.manifest.next_id:
        problems.append("an id is higher than the manifest allows")
    for segment in index.segments:
        facts = segment.every_facts()
        wrong = segment.alive & ~segments.are_places(segment.vectors[:], index.manifest.model)
        problems += [f"{facts[row].path}: {segments.NO_PLACE}" for row in np.flatnonzero(wrong)]
    return problems + _outside(index)


def _outside(index: Index) -> list[str]:
    """Vectors that a store outside the folder holds otherwise than the folder does."""
    entry = index.manifest.outside
    if entry is None:
        return []
    rows = np.flatnonzero(index.alive & (index.serials <= entry.last_serial))
    store = outside(entry, index.manifest.model)
    try:
        held = store.vectors(index.serials[rows])
    except UnavailableError as error:
        return [f"{error}: its vectors were not compared"]
    wrong = int((held != index.row_vectors(rows)).any(axis=1).sum())
    return [f"{store.name} at {entry.uri} lacks {wrong} of {len(rows)} vectors"] if wrong else []
