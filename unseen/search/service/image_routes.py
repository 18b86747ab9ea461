"""Routes that show what is in the index: images, large and small, in pages, and labels."""

import io
from datetime import UTC, datetime
from typing import Annotated, Literal

import numpy as np
from fastapi import FastAPI, Query, Response
from pydantic import BaseModel

from unseen.data.images.decode import UnreadableImageError
from unseen.search.file_states import embedded_content
from unseen.search.index import Ids, Index
from unseen.search.service.decoding import BusyError, Reader
from unseen.search.service.index_registry import IndexRegistry, Snapshot
from unseen.search.service.parameters import (
    MISSING,
    MOST,
    Id,
    IdList,
    ImageBody,
    K,
    Label,
    Start,
    Where,
    ids_in,
    name_of,
    or_404,
)

LARGE_SIDE = 1024  # of an image shown large


class PagesBody(BaseModel):
    """A page of the images; total: how many there are on all pages."""

    total: int
    images: list[ImageBody]


class LabelBody(BaseModel):
    """A label, how many images have it, and one of them."""

    name: str
    images: int
    id: int


class LabelsBody(BaseModel):
    total: int
    labels: list[LabelBody]


class MetadataBody(ImageBody):
    """num_bytes, modified: of its file as it was embedded. same_label: how many have its label.
    box: left, top, right, bottom of the part that counts, null for all of it."""

    num_bytes: int
    modified: str
    same_label: int | None
    columns: dict[str, str | int | float]
    box: tuple[int, int, int, int] | None


def add_images(app: FastAPI, registry: IndexRegistry, reader: Reader, prefix: str = "") -> None:
    @app.get(f"{prefix}/api/images/{{id}}/thumbnail", responses=MISSING, response_class=Response)
    def thumbnail(id: Id) -> Response:
        """A small WebP image."""
        content = or_404(lambda: registry.snapshot.index.thumbnail(id))
        return Response(content, media_type="image/webp", headers={"cache-control": "max-age=300"})

    @app.get(f"{prefix}/api/images/{{id}}", responses=MISSING, response_class=Response)
    def image(id: Id) -> Response:
        """The image as a JPEG of at most 1024 pixels; its thumbnail where the file is gone or is
        not what was embedded."""
        content = embedded_content(or_404(lambda: registry.snapshot.index.metadata(id)))
        if content is None:
            return thumbnail(id)
        try:
            image = reader.shown(content, LARGE_SIDE)
        except (UnreadableImageError, BusyError):
            return thumbnail(id)
        image.thumbnail((LARGE_SIDE, LARGE_SIDE))
        written = io.BytesIO()
        image.save(written, "JPEG", quality=88)
        return Response(written.getvalue(), media_type="image/jpeg")


def add_browsing(app: FastAPI, registry: IndexRegistry) -> None:
    @app.get("/api/images", responses=MISSING)
    def images(
        order: Literal["recent", "random"] = "recent",
        seed: Annotated[int, Query(ge=0, le=2**31, description="of the random order")] = 0,
        label: Label = None,
        where: Where = None,
        ids: IdList = "",
        start: Start = 0,
        count: K = 24,
    ) -> PagesBody:
        """Images of the index, the last that came first, or in a random order; all, those of a
        label or a filter, or those that are named."""
        snapshot = registry.snapshot
        if ids:
            chosen: Ids = np.array(ids_in(ids), dtype=np.int64)
        else:
            chosen = or_404(lambda: _ordered(snapshot, order, seed, label, where))
        page = or_404(
            lambda: [_body(snapshot.index, int(id)) for id in chosen[start : start + count]]
        )
        return PagesBody(total=len(chosen), images=page)

    @app.get("/api/images/{id}/metadata", responses=MISSING)
    def metadata(id: Id) -> MetadataBody:
        """What is known of an image."""
        snapshot = registry.snapshot
        known = or_404(lambda: snapshot.index.metadata(id))
        same = None if known.label is None else len(snapshot.by_label[known.label])
        when = datetime.fromtimestamp(known.modified / 1e9, UTC).isoformat(timespec="seconds")
        return MetadataBody(
            **_body(snapshot.index, id).model_dump(),
            num_bytes=known.num_bytes,
            modified=when,
            same_label=same,
            columns=dict(known.columns),
            box=known.box,
        )

    @app.get("/api/labels")
    def labels(
        q: Annotated[str, Query(max_length=500, description="a part of the label")] = "",
        start: Start = 0,
        count: Annotated[int, Query(ge=1, le=MOST)] = 24,
    ) -> LabelsBody:
        """Labels by their alphabet; with `q` those that hold it, first those that begin with it."""
        by_label, text = registry.snapshot.by_label, q.strip().casefold()
        names = [name for name in by_label if text in name.casefold()]
        names.sort(key=lambda name: not name.casefold().startswith(text))
        page = [
            LabelBody(name=name, images=len(by_label[name]), id=int(by_label[name][0]))
            for name in names[start : start + count]
        ]
        return LabelsBody(total=len(names), labels=page)


def _ordered(
    snapshot: Snapshot, order: str, seed: int, label: str | None, where: str | None
) -> Ids:
    chosen = snapshot.chosen(label, where)
    ids = snapshot.index.ids if chosen is None else chosen
    if order == "random":
        return np.random.default_rng(seed).permutation(ids)
    return ids[::-1]


def _body(index: Index, id: int) -> ImageBody:
    known = index.image(id)
    return ImageBody(id=id, name=name_of(known.path), label=known.label)
