"""Pictures into an index: find the files, embed what is new or changed, in batches, resumably.

A batch counts once it is on the disk; after a crash the same call goes on where it was, because
pictures that are in the index and unchanged (same size and time of the file) are passed over.
Unreadable files are left out and counted. With class folders, `root/<class>/**`, the class is the
label.
"""

import io
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from unseen.contracts import IntArray, Progress
from unseen.data.pictures import table_file
from unseen.data.pictures.boxes import boxes_of, inside, mark
from unseen.data.pictures.decode import Box, UnreadablePictureError, decode
from unseen.data.pictures.files import pictures_in
from unseen.data.pictures.prefetch import prefetch
from unseen.experiment.trained import BoxedPicture, Trained
from unseen.files import shown
from unseen.names import near_path
from unseen.reports.thumbnails import fitted
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NO_PLACE, Facts, NewPicture, are_places
from unseen.search.writer import Writer

BATCH = 32  # pictures through the network at once
COMMIT = 1024  # pictures written at once, or what came within
SECONDS = 20.0
THUMBNAIL = 128
QUALITY = 75


@dataclass(frozen=True)
class Source:
    """A picture file or a part of it, and its label if somebody says so."""

    path: Path
    label: str | None = None
    box: Box | None = None  # the part of the picture that counts

    @property
    def name(self) -> str:
        """As `Facts.name`."""
        return str(self.path) + mark(self.box)

    @property
    def picture(self) -> Path | BoxedPicture:
        return self.path if self.box is None else BoxedPicture(self.path, self.box)


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


def find(places: Sequence[Path], label: str | None = None, by_folder: bool = True) -> list[Source]:
    """Picture files, those in folders, and those a table lists, perhaps with boxes. `label`: of all
    of them; otherwise tables and class folders tell, the latter unless `by_folder` is off."""
    found: dict[str, Source] = {}
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"no such file or folder: {place}{near_path(place)}")
        root = place.resolve()
        if root.suffix.lower() in table_file.SUFFIXES:
            sources = _listed(root)
        else:
            paths = pictures_in(root) if root.is_dir() else [root]
            sources = [
                Source(path, _class_folder(path, root) if by_folder else None) for path in paths
            ]
        for source in sources:
            found.setdefault(source.name, replace(source, label=label or source.label))
    if not found:
        raise ValueError(f"no pictures in {', '.join(map(str, places))}")
    return list(found.values())


def source_of(facts: Facts) -> Source:
    """Where a picture of an index came from."""
    return Source(Path(facts.path), facts.label, facts.box)


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
    """Embeds and adds what is not there yet; with `replace_changed` also files that changed. `ids`
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
        elif replace_changed and _changed(source, known[name][1]):
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
    model: Trained, places: Sequence[Path], out: Path, progress: Progress | None = None
) -> Index:
    """An index of the pictures in some places, or more of them in one that is there already;
    stopped, the same call goes on."""
    exists = (out / "manifest.json").exists()
    with Writer.open(out) if exists else Writer.create(out, model_entry(model)) as writer:
        ingest(writer, model, find(places), progress)
        writer.refresh_store()
    return Index.open(out)


def _changed(source: Source, facts: Facts) -> bool:
    """The file is another, or its label is."""
    if source.label not in (None, facts.label):
        return True
    try:
        return _state(source.path) != (facts.num_bytes, facts.modified)
    except FileNotFoundError:
        return False  # what is known of it stays


def _prepare(model: Trained, source: Source, id: int | None) -> _Prepared:
    """What the network takes, facts and thumbnail; or what is wrong with the file."""
    try:
        num_bytes, modified = _state(source.path)
        image, picture = model.prepared(source.picture), _small(source)
    except UnreadablePictureError as error:
        return _Prepared(torch.empty(0), None, error.line)
    except OSError as error:
        return _Prepared(torch.empty(0), None, f"{shown(source.path)} ({error.strerror or error})")
    file = io.BytesIO()
    fitted(picture, THUMBNAIL).save(file, "WEBP", quality=QUALITY)
    facts = Facts(str(source.path), source.label, num_bytes, modified, source.box)
    return _Prepared(image, NewPicture(facts, torch.empty(0).numpy(), file.getvalue(), id))


def _small(source: Source) -> Image.Image:
    """What the thumbnail is made from."""
    if source.box is None:
        return decode(source.path, THUMBNAIL)
    return Image.fromarray(inside(source.path, source.box).pixels())


def _listed(table: Path) -> list[Source]:
    """The rows of a table: `path`, and perhaps `label` and a box."""
    held = table_file.read(table)
    if "path" not in held:
        raise ValueError(f"{table} has no column path, it has {', '.join(held)}")
    labels: Sequence[str | None] = held.get("label") or [None] * len(held["path"])
    boxes = boxes_of(held, table)
    return [
        Source((table.parent / path).resolve(), label or None, _box(boxes, row))
        for row, (path, label) in enumerate(zip(held["path"], labels, strict=True))
    ]


def _box(boxes: IntArray | None, row: int) -> Box | None:
    if boxes is None or boxes[row, 2] < 0:
        return None
    left, top, right, bottom = boxes[row].clip(min=0).tolist()
    return left, top, right, bottom


def _class_folder(path: Path, root: Path) -> str | None:
    inside = path.relative_to(root).parts
    return inside[0] if len(inside) > 1 else None


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


def _state(path: Path) -> tuple[int, int]:
    state = os.stat(path)
    return state.st_size, state.st_mtime_ns
