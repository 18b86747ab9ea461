"""Images to rows of an index: vector, metadata, thumbnail; prepared in threads while the network
computes. What cannot be read is told, not raised."""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from unseen.core.files import shown
from unseen.data.containers import locations
from unseen.data.images.boxes import inside
from unseen.data.images.decode import Box, UnreadableImageError, decode
from unseen.data.images.exif import taken
from unseen.data.images.prefetch import prefetch
from unseen.reports.thumbnails import fitted
from unseen.runs.trained_run import BoxedImage, Trained
from unseen.search.file_states import digest_of
from unseen.search.image_sources import Source
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NO_PLACE, Metadata, NewImage, are_places

BATCH = 32  # images through the network at once
THUMBNAIL = 128
QUALITY = 75
_GROUP = 8  # images that a thread prepares in one go
_AHEAD = 16  # such groups, at most

Wanted = tuple[Source, int | None]  # an image, and its id if it has one


@dataclass(frozen=True)
class Unreadable:
    """An image without a vector, and why."""

    wanted: Wanted
    reason: str

    @property
    def line(self) -> str:
        return f"{shown(self.wanted[0].path)} ({self.reason})"


@dataclass(frozen=True)
class _Prepared:
    wanted: Wanted
    pixels: Tensor
    image: NewImage  # without its vector


def model_entry(model: Trained) -> ModelEntry:
    """How an index remembers who made its vectors."""
    return ModelEntry(
        run=str(model.folder.path.resolve()),
        fingerprint=model.fingerprint,
        size=model.network.embedding_size,
        normalize=model.config.evaluation.normalize,
    )


def embedded(
    model: Trained,
    wanted: Iterable[Wanted],
    lost: Callable[[Unreadable], None],
    batch: int = BATCH,
    thumbnails: bool = True,
) -> Iterator[list[NewImage]]:
    """Batches of images with their vectors, in their order. `lost` gets those that have none."""
    waiting: list[_Prepared] = []
    entry = model_entry(model)

    def computed() -> list[NewImage]:
        vectors = model.vectors(torch.stack([item.pixels for item in waiting])).numpy()
        made = []
        for item, vector, right in zip(waiting, vectors, are_places(vectors, entry), strict=True):
            if right:
                made.append(replace(item.image, vector=vector))
            else:
                lost(Unreadable(item.wanted, NO_PLACE))
        waiting.clear()
        return made

    def prepared(some: tuple[Wanted, ...]) -> list[_Prepared | Unreadable]:
        return [_prepared(model, one, thumbnails) for one in some]

    every = iter(wanted)
    groups = iter(lambda: tuple(islice(every, _GROUP)), ())
    for result in prefetch(prepared, groups, model.threads, _AHEAD):
        for item in result:
            if isinstance(item, Unreadable):
                lost(item)
                continue
            waiting.append(item)
            if len(waiting) == batch:
                yield computed()
    if waiting:
        yield computed()


def _prepared(model: Trained, wanted: Wanted, thumbnails: bool) -> _Prepared | Unreadable:
    """What the network takes, metadata and thumbnail; or what is wrong with the file."""
    source, id = wanted
    try:
        state = locations.state(source.path)
        # what lies elsewhere is fetched once
        content = locations.read(source.path) if isinstance(source.path, str) else source.path
        image = content if source.box is None else BoxedImage(content, source.box)
        pixels = model.prepared(image)
        exif = taken(content)
        small = _thumbnail(content, source.box) if thumbnails else b""
        if isinstance(content, bytes):
            digest = hashlib.sha256(content).hexdigest()
        else:
            digest = digest_of(content)
            if locations.state(content) != state:
                digest = ""  # it may not be of what was decoded
    except UnreadableImageError as error:
        return Unreadable(wanted, error.reason)
    except OSError as error:
        return Unreadable(wanted, str(error.strerror or error))
    metadata = Metadata(
        str(source.path),
        source.label,
        state.num_bytes,
        state.modified,
        source.box,
        mark=state.mark,
        digest=digest,
        columns={**source.columns, **exif},
    )
    return _Prepared(wanted, pixels, NewImage(metadata, torch.empty(0).numpy(), small, id))


def _thumbnail(content: Path | bytes, box: Box | None) -> bytes:
    if box is None:
        image = decode(content, THUMBNAIL)
    else:
        image = Image.fromarray(inside(content, box).pixels())
    file = io.BytesIO()
    fitted(image, THUMBNAIL).save(file, "WEBP", quality=QUALITY)
    return file.getvalue()
