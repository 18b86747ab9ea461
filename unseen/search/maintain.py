"""Keeping an index: which model, which pictures, in line with the files, made anew."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from unseen.experiment.trained import Trained
from unseen.search import manifest as manifests
from unseen.search.index import Index
from unseen.search.ingest import Ingested, Source, ingest, model_entry
from unseen.search.verify import verify
from unseen.search.writer import Writer

Progress = Callable[[int, int], None]


def model_of(index: Path, run: Path | None = None) -> Trained:
    """The model an index was made with, from where it was or where `run` says it is now."""
    place = run or Path(manifests.read(index).model.run)
    if not place.exists():
        raise ValueError(f"the run of {index} is not at {place}: say where with --run")
    return Trained.open(place)


def named(index: Index, words: Sequence[str]) -> list[int]:
    """Ids of pictures by id, path, or folder above them; every word must mean something."""
    by_path = {facts.path: id for id, facts in index.every()}
    known = set(by_path.values())
    found: list[int] = []
    for word in words:
        path = str(Path(word).resolve())
        inside = [id for name, id in by_path.items() if name.startswith(path + os.sep)]
        if path in by_path:
            found.append(by_path[path])
        elif word.isdigit() and int(word) in known:
            found.append(int(word))
        elif inside:
            found += inside
        else:
            raise ValueError(f"{index.path} holds no picture {word}")
    return found


def update(
    writer: Writer, model: Trained, new: Sequence[Source], progress: Progress | None = None
) -> tuple[int, Ingested]:
    """Removes pictures whose file is gone, renews those whose file or label changed, adds new
    ones; returns how many were removed and what became of the rest."""
    known = [(id, Source(Path(f.path), f.label)) for id, f in writer.index().every()]
    gone = [id for id, source in known if not source.path.exists()]
    sources = {source.path: source for _, source in known if source.path.exists()}
    for source in new:
        if source.label is not None or source.path not in sources:
            sources[source.path] = source
    done = ingest(writer, model, list(sources.values()), progress, replace_changed=True)
    return writer.remove(gone) if gone else 0, done


def rebuild(path: Path, model: Trained, progress: Progress | None = None) -> Ingested:
    """The same pictures with the vectors of another model, under their old ids: made aside, then
    put in the place of the old ones at once. Goes on where a stopped rebuild was."""
    aside, entry = path.with_name(f".{path.name}.rebuild"), model_entry(model)
    with Writer.open(path) as old:  # nobody else writes meanwhile
        begun = (aside / manifests.NAME).exists() and not verify(aside)
        if not begun or manifests.read(aside).model != entry:
            shutil.rmtree(aside, ignore_errors=True)
            begun = False
        pictures = list(old.index().every())
        ids = {facts.path: id for id, facts in pictures}
        sources = [Source(Path(facts.path), facts.label) for _, facts in pictures]
        with Writer.open(aside) if begun else Writer.create(aside, entry) as writer:
            done = ingest(writer, model, sources, progress, ids=ids)
        old.become(aside)
        old.refresh_store()
    shutil.rmtree(aside)
    return done
