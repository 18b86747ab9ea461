"""Pictures to rows of an index: vector, facts, thumbnail; prepared in threads while the network
computes. What cannot be read is told, not raised."""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from unseen.data.containers import places
from unseen.data.pictures.boxes import inside
from unseen.data.pictures.decode import Box, UnreadablePictureError, decode
from unseen.data.pictures.prefetch import prefetch
from unseen.experiment.trained import BoxedPicture, Trained
from unseen.files import shown
from unseen.reports.thumbnails import fitted
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NO_PLACE, Facts, NewPicture, are_places
from unseen.search.sources import Source

BATCH = 32  # pictures through the network at once
THUMBNAIL = 128
QUALITY = 75
_TOGETHER = 8  # pictures that a thread prepares in one go
_AHEAD = 16  # such groups, at most

Wanted = tuple[Source, int | None]  # a picture, and its id if it has one


@dataclass(frozen=True)
class Unreadable:
    """A picture without a vector, and why."""

    wanted: Wanted
    reason: str

    @property
    def line(self) -> str:
        return f"{shown(self.wanted[0].path)} ({self.reason})"


@dataclass(frozen=True)
class _Prepared:
    wanted: Wanted
    image: Tensor
    picture: NewPicture  # without its vector


def model_entry(model: Trained) -> ModelEntry:
    """How an index remembers who made its vectors."""
    return ModelEntry(
        run=str(model.folder.path.resolve()),
        fingerprint=model.fingerprint,
        size=model.network.embedding_size,
        normalise=model.config.normalise,
    )


def embedded(
    model: Trained,
    wanted: Iterable[Wanted],
    lost: Callable[[Unreadable], None],
    batch: int = BATCH,
    thumbnails: bool = True,
) -> Iterator[list[NewPicture]]:
    """Batches of pictures with their vectors, in their order. `lost` is told of those that have
    none."""
    waiting: list[_Prepared] = []
    entry = model_entry(model)

    def computed() -> list[NewPicture]:
        vectors = model.vectors(torch.stack([item.image for item in waiting])).numpy()
        made = []
        for item, vector, right in zip(waiting, vectors, are_places(vectors, entry), strict=True):
            if right:
                made.append(replace(item.picture, vector=vector))
            else:
                lost(Unreadable(item.wanted, NO_PLACE))
        waiting.clear()
        return made

    def prepared(some: tuple[Wanted, ...]) -> list[_Prepared | Unreadable]:
        return [_prepared(model, one, thumbnails) for one in some]

    every = iter(wanted)
    groups = iter(lambda: tuple(islice(every, _TOGETHER)), ())
    for found in prefetch(prepared, groups, model.threads, _AHEAD):
        for item in found:
            if isinstance(item, Unreadable):
                lost(item)
                continue
            waiting.append(item)
            if len(waiting) == batch:
                yield computed()
    if waiting:
        yield computed()


def _prepared(model: Trained, wanted: Wanted, thumbnails: bool) -> _Prepared | Unreadable:
    """What the network takes, facts and thumbnail; or what is wrong with the file."""
    source, id = wanted
    try:
        num_bytes, modified, _ = places.state(source.path)
        # what lies elsewhere is fetched once
        content = places.read(source.path) if isinstance(source.path, str) else source.path
        picture = content if source.box is None else BoxedPicture(content, source.box)
        image = model.prepared(picture)
        small = _thumbnail(content, source.box) if thumbnails else b""
    except UnreadablePictureError as error:
        return Unreadable(wanted, error.reason)
    except OSError as error:
        return Unreadable(wanted, str(error.strerror or error))
    facts = Facts(str(source.path), source.label, num_bytes, modified, source.box)
    return _Prepared(wanted, image, NewPicture(facts, torch.empty(0).numpy(), small, id))


def _thumbnail(content: Path | bytes, box: Box | None) -> bytes:
    if box is None:
        picture = decode(content, THUMBNAIL)
    else:
        picture = Image.fromarray(inside(content, box).pixels())
    file = io.BytesIO()
    fitted(picture, THUMBNAIL).save(file, "WEBP", quality=QUALITY)
    return file.getvalue()
