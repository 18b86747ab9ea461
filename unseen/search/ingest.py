"""Images into an index: find the files, embed what is new or changed, in batches, resumably.

A batch counts once it is on the disk; after a crash the same call goes on where it was, because
images that are in the index and unchanged (`states.py`) are passed over.
Unreadable files are left out and counted. In class folders the class (`class_of`) is the label.
"""

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from unseen.core.contracts import Progress
from unseen.core.uris import Place
from unseen.runs.trained_run import Trained
from unseen.search.embedding import BATCH, Unreadable, Wanted, embedded, model_entry
from unseen.search.file_states import unchanged
from unseen.search.image_sources import Source, class_rule, find
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import Metadata, NewImage
from unseen.search.writer import Writer

Embed = Callable[[Trained, list[Wanted], Callable[[Unreadable], None]], Iterator[list[NewImage]]]

COMMIT = 1024  # images written at once, or what came within
SECONDS = 20.0


@dataclass
class Ingested:
    """What became of the files that were given."""

    added: int = 0
    changed: int = 0
    same: int = 0
    unreadable: list[str] = field(default_factory=list)
    lost: list[Source] = field(default_factory=list)  # the same ones


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
    thorough: bool = False,
    ids: Mapping[str, int] | None = None,
    embed: Embed | None = None,
) -> Ingested:
    """Embeds and adds what is not there yet, and what has a compatible vector (`upgrade.py`); with
    `replace_changed` also files that changed, found `thorough`ly by their content alone. `ids` are
    those that new images get by their path; without, one that was there before its file went
    away gets its old one, others are numbered. `embed`: who makes the vectors, if not this
    process."""
    require_same_model(writer.manifest.model, model, writer.path)
    known = {metadata.name: (id, metadata) for id, metadata in writer.index().every()}
    wanted: list[Wanted] = []
    touched: list[tuple[int, Metadata]] = []  # the same files, in another state
    numbered = ids or writer.vanished()
    for source in sources:
        if source.name not in known:
            wanted.append((source, numbered.get(source.name)))
            continue
        id, metadata = known[source.name]
        relabelled = source.label not in (None, metadata.label) or bool(
            source.columns.items() - metadata.columns.items()
        )
        now = unchanged(metadata, thorough) if replace_changed and not relabelled else metadata
        if now is None or metadata.compatible or (replace_changed and relabelled):
            wanted.append((source, id))
        elif now != metadata:
            touched.append((id, now))
    _note(writer, touched)
    done = Ingested(same=len(sources) - len(wanted))
    embed = embed or partial(embedded, batch=BATCH)

    def lose(item: Unreadable) -> None:
        done.unreadable.append(item.line)
        done.lost.append(item.wanted[0])

    for batch in _commits(embed(model, wanted, lose)):
        writer.add(batch)
        renewed = sum(image.metadata.name in known for image in batch)
        done.added, done.changed = done.added + len(batch) - renewed, done.changed + renewed
        if progress is not None:
            finished = done.same + done.added + done.changed + len(done.unreadable)
            progress(finished, len(sources))
    return done


def _note(writer: Writer, touched: Sequence[tuple[int, Metadata]]) -> None:
    """The state that files have now, or their content would be compared again every time."""
    index = writer.index()
    for start in range(0, len(touched), COMMIT):
        some = touched[start : start + COMMIT]
        writer.add([replace(index.row(id), metadata=metadata) for id, metadata in some])


def build_index(
    model: Trained, images: Sequence[Place], out: Path, progress: Progress | None = None
) -> Index:
    """An index of the images in some places, or more of them in one that is there already;
    stopped, the same call goes on."""
    exists = (out / "manifest.json").exists()
    with Writer.open(out) if exists else Writer.create(out, model_entry(model)) as writer:
        ingest(writer, model, find(images, rule=class_rule(model)), progress)
        writer.refresh_backend()
    return Index.open(out)


def _commits(batches: Iterable[list[NewImage]]) -> Iterator[list[NewImage]]:
    """Batches gathered to what is worth a write."""
    gathered: list[NewImage] = []
    since = time.monotonic()
    for batch in batches:
        gathered += batch
        if len(gathered) >= COMMIT or time.monotonic() - since > SECONDS:
            yield gathered
            gathered, since = [], time.monotonic()
    if gathered:
        yield gathered
