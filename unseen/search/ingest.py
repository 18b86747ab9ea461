"""Pictures into an index: find the files, embed what is new or changed, in batches, resumably.

A batch counts once it is on the disk; after a crash the same call goes on where it was, because
pictures that are in the index and unchanged (same size and time of the file) are passed over.
Unreadable files are left out and counted. With class folders, `root/<class>/**`, the class is the
label.
"""

import io
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from unseen.addresses import Place
from unseen.contracts import Progress
from unseen.data.containers import places
from unseen.data.pictures.boxes import inside
from unseen.data.pictures.decode import Box, UnreadablePictureError, decode
from unseen.data.pictures.prefetch import prefetch
from unseen.experiment.trained import BoxedPicture, Trained
from unseen.files import shown
from unseen.reports.thumbnails import fitted
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NO_PLACE, Facts, NewPicture, are_places
from unseen.search.sources import Source, find
from unseen.search.writer import Writer

BATCH = 32  # pictures through the network at once
COMMIT = 1024  # pictures written at once, or what came within
SECONDS = 20.0
THUMBNAIL = 128
QUALITY = 75


@dataclass
class Ingested:
    """What became of the files that were given."""

    added: int = 0
    changed: int = 0
    same: int = 0
    unreadable: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Prepared:
    image: Tensor
    picture: NewPicture | None  # without its vector
    problem: str | None = None


def model_entry(model: Trained) -> ModelEntry:
    """How an index remembers who made its vectors."""
    return ModelEntry(
        run=str(model.folder.path.resolve()),
        fingerprint=model.fingerprint,
        size=model.network.embedding_size,
        normalise=model.config.normalise,
    )


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
) -> Ingested:
    """Embeds and adds what is not there yet, and what has a mapped vector (`upgrade.py`); with
    `replace_changed` also files that changed. `ids`
    are those that new pictures get by their path; without, one that was there before its file went
    away gets its old one, others are numbered."""
    require_same_model(writer.manifest.model, model, writer.path)
    known = {facts.name: (id, facts) for id, facts in writer.index().every()}
    wanted: list[tuple[Source, int | None]] = []
    numbered = ids or writer.vanished()
    for source in sources:
        name = source.name
        if name not in known:
            wanted.append((source, numbered.get(name)))
        elif known[name][1].mapped or (replace_changed and _changed(source, known[name][1])):
            wanted.append((source, known[name][0]))
    done = Ingested(same=len(sources) - len(wanted))
    prepared = prefetch(lambda pair: _prepare(model, *pair), wanted, model.threads)
    for batch in _commits(_embedded(model, prepared, done)):
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


def _prepare(model: Trained, source: Source, id: int | None) -> _Prepared:
    """What the network takes, facts and thumbnail; or what is wrong with the file."""
    try:
        num_bytes, modified, _ = places.state(source.path)
        # what lies elsewhere is fetched once
        content = places.read(source.path) if isinstance(source.path, str) else source.path
        picture = content if source.box is None else BoxedPicture(content, source.box)
        image, small = model.prepared(picture), _small(content, source.box)
    except UnreadablePictureError as error:
        return _Prepared(torch.empty(0), None, f"{shown(source.path)} ({error.reason})")
    except OSError as error:
        return _Prepared(torch.empty(0), None, f"{shown(source.path)} ({error.strerror or error})")
    file = io.BytesIO()
    fitted(small, THUMBNAIL).save(file, "WEBP", quality=QUALITY)
    facts = Facts(str(source.path), source.label, num_bytes, modified, source.box)
    return _Prepared(image, NewPicture(facts, torch.empty(0).numpy(), file.getvalue(), id))


def _small(content: Path | bytes, box: Box | None) -> Image.Image:
    """What the thumbnail is made from."""
    if box is None:
        return decode(content, THUMBNAIL)
    return Image.fromarray(inside(content, box).pixels())


def _embedded(
    model: Trained, prepared: Iterable[_Prepared], done: Ingested
) -> Iterator[list[NewPicture]]:
    """Batches with their vectors."""
    waiting: list[_Prepared] = []
    entry = model_entry(model)

    def batch() -> list[NewPicture]:
        vectors = model.vectors(torch.stack([item.image for item in waiting])).numpy()
        made = []
        for item, vector, right in zip(waiting, vectors, are_places(vectors, entry), strict=True):
            assert item.picture is not None
            if right:
                made.append(replace(item.picture, vector=vector))
            else:
                done.unreadable.append(f"{item.picture.facts.path} ({NO_PLACE})")
        waiting.clear()
        return made

    for item in prepared:
        if item.picture is None:
            done.unreadable.append(str(item.problem))
            continue
        waiting.append(item)
        if len(waiting) == BATCH:
            yield batch()
    if waiting:
        yield batch()


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
