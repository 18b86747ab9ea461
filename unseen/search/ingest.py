"""Pictures into an index: find the files, embed what is new or changed, in batches, resumably.

A batch counts once it is on the disk; after a crash the same call goes on where it was, because
pictures that are in the index and unchanged (same size and time of the file) are passed over.
Unreadable files are left out and counted. With class folders, `root/<class>/**`, the class is the
label.
"""

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from unseen.addresses import Place
from unseen.contracts import Progress
from unseen.data.containers import places
from unseen.experiment.trained import Trained
from unseen.search.embedding import BATCH, Unreadable, Wanted, embedded, model_entry
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import Facts, NewPicture
from unseen.search.sources import Source, find
from unseen.search.writer import Writer

Embed = Callable[[Trained, list[Wanted], Callable[[Unreadable], None]], Iterator[list[NewPicture]]]

COMMIT = 1024  # pictures written at once, or what came within
SECONDS = 20.0


@dataclass
class Ingested:
    """What became of the files that were given."""

    added: int = 0
    changed: int = 0
    same: int = 0
    unreadable: list[str] = field(default_factory=list)


def require_same_model(known: ModelEntry, model: Trained, index: Path) -> None:
    """Vectors of two models cannot be compared."""
    if known.fingerprint != model.fingerprint:
        raise ValueError(
            f"{index} was made with another model (fingerprint {known.fingerprint[:8]}, "
            f"{model.folder.path} is {model.fingerprint[:8]}): "
            f"`unseen index rebuild {shlex.quote(str(index))}`"
        )


def ingest(
    writer: Writer,
    model: Trained,
    sources: Sequence[Source],
    progress: Progress | None = None,
    *,
    replace_changed: bool = False,
    ids: Mapping[str, int] | None = None,
    embed: Embed | None = None,
) -> Ingested:
    """Embeds and adds what is not there yet, and what has a mapped vector (`upgrade.py`); with
    `replace_changed` also files that changed. `ids`
    are those that new pictures get by their path; without, one that was there before its file went
    away gets its old one, others are numbered. `embed`: who makes the vectors, if not this
    process."""
    require_same_model(writer.manifest.model, model, writer.path)
    known = {facts.name: (id, facts) for id, facts in writer.index().every()}
    wanted: list[Wanted] = []
    numbered = ids or writer.vanished()
    for source in sources:
        name = source.name
        if name not in known:
            wanted.append((source, numbered.get(name)))
        elif known[name][1].mapped or (replace_changed and _changed(source, known[name][1])):
            wanted.append((source, known[name][0]))
    done = Ingested(same=len(sources) - len(wanted))
    embed = embed or partial(embedded, batch=BATCH)
    for batch in _commits(embed(model, wanted, lambda lost: done.unreadable.append(lost.line))):
        writer.add(batch)
        renewed = sum(picture.facts.name in known for picture in batch)
        done.added, done.changed = done.added + len(batch) - renewed, done.changed + renewed
        if progress is not None:
            finished = done.same + done.added + done.changed + len(done.unreadable)
            progress(finished, len(sources))
    return done


def build_index(
    model: Trained, pictures: Sequence[Place], out: Path, progress: Progress | None = None
) -> Index:
    """An index of the pictures in some places, or more of them in one that is there already;
    stopped, the same call goes on."""
    exists = (out / "manifest.json").exists()
    with Writer.open(out) if exists else Writer.create(out, model_entry(model)) as writer:
        ingest(writer, model, find(pictures), progress)
        writer.refresh_store()
    return Index.open(out)


def _changed(source: Source, facts: Facts) -> bool:
    """The file is another, or its label is."""
    if source.label not in (None, facts.label):
        return True
    try:
        found = places.state(source.path)
        return (found.num_bytes, found.modified) != (facts.num_bytes, facts.modified)
    except FileNotFoundError:
        return False  # what is known of it stays


def _commits(batches: Iterable[list[NewPicture]]) -> Iterator[list[NewPicture]]:
    """Batches gathered to what is worth a write."""
    gathered: list[NewPicture] = []
    since = time.monotonic()
    for batch in batches:
        gathered += batch
        if len(gathered) >= COMMIT or time.monotonic() - since > SECONDS:
            yield gathered
            gathered, since = [], time.monotonic()
    if gathered:
        yield gathered
