"""Routes that show what is in the index: pictures, large and small, in pages, and labels."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from fastapi import FastAPI, Query, Response
from pydantic import BaseModel

from unseen.data.pictures.decode import UnreadablePictureError
from unseen.search.index import Ids, Index
from unseen.search.service.decoding import BusyError, Reader
from unseen.search.service.library import Library, Shelf
from unseen.search.service.parameters import (
    MISSING,
    MOST,
    Id,
    IdList,
    K,
    Label,
    PictureBody,
    Start,
    ids_in,
    name_of,
    or_404,
)

LARGE_SIDE = 1024  # of a picture shown large


class PagesBody(BaseModel):
    """A page of the pictures; total: how many there are on all pages."""

    total: int
    pictures: list[PictureBody]


class LabelBody(BaseModel):
    """A label, how many pictures have it, and one of them."""

    name: str
    pictures: int
    id: int


class LabelsBody(BaseModel):
    total: int
    labels: list[LabelBody]


class FactsBody(PictureBody):
    """num_bytes, modified: of its file as it was embedded. same_label: how many have its label.
    box: left, top, right, bottom of the part that counts, null for all of it."""

    num_bytes: int
    modified: str
    same_label: int | None
    box: tuple[int, int, int, int] | None


def add_pictures(app: FastAPI, library: Library, reader: Reader, prefix: str = "") -> None:
    @app.get(f"{prefix}/api/pictures/{{id}}/thumbnail", responses=MISSING, response_class=Response)
    def thumbnail(id: Id) -> Response:
        """A small WebP picture."""
        content = or_404(lambda: library.shelf.index.thumbnail(id))
        return Response(content, media_type="image/webp", headers={"cache-control": "max-age=300"})

    @app.get(f"{prefix}/api/pictures/{{id}}", responses=MISSING, response_class=Response)
    def picture(id: Id) -> Response:
        """The picture as a JPEG of at most 1024 pixels; its thumbnail where the file is gone."""
        found = or_404(lambda: library.shelf.index.picture(id))
        try:
            image = reader.shown(Path(found.path))
        except (UnreadablePictureError, BusyError):
            return thumbnail(id)
        image.thumbnail((LARGE_SIDE, LARGE_SIDE))
        written = io.BytesIO()
        image.save(written, "JPEG", quality=88)
        return Response(written.getvalue(), media_type="image/jpeg")


def add_browsing(app: FastAPI, library: Library) -> None:
    @app.get("/api/pictures", responses=MISSING)
    def pictures(
        order: Literal["recent", "random"] = "recent",
        seed: Annotated[int, Query(ge=0, le=2**31, description="of the random order")] = 0,
        label: Label = None,
        ids: IdList = "",
        start: Start = 0,
        count: K = 24,
    ) -> PagesBody:
        """Pictures of the index, the last that came first, or in a random order; all, those of a
        label, or those that are named."""
        shelf = library.shelf
        if ids:
            chosen: Ids = np.array(ids_in(ids), dtype=np.int64)
        else:
            chosen = or_404(lambda: _ordered(shelf, order, seed, label))
        page = or_404(lambda: [_body(shelf.index, int(id)) for id in chosen[start : start + count]])
        return PagesBody(total=len(chosen), pictures=page)

    @app.get("/api/pictures/{id}/facts", responses=MISSING)
    def facts(id: Id) -> FactsBody:
        """What is known of a picture."""
        shelf = library.shelf
        known = or_404(lambda: shelf.index.facts(id))
        same = None if known.label is None else len(shelf.by_label[known.label])
        when = datetime.fromtimestamp(known.modified / 1e9, UTC).isoformat(timespec="seconds")
        return FactsBody(
            **_body(shelf.index, id).model_dump(),
            num_bytes=known.num_bytes,
            modified=when,
            same_label=same,
            box=known.box,
        )

    @app.get("/api/labels")
    def labels(
        q: Annotated[str, Query(max_length=500, description="a part of the label")] = "",
        start: Start = 0,
        count: Annotated[int, Query(ge=1, le=MOST)] = 24,
    ) -> LabelsBody:
        """Labels by their alphabet; with `q` those that hold it, first those that begin with it."""
        by_label, part = library.shelf.by_label, q.strip().casefold()
        held = [name for name in by_label if part in name.casefold()]
        held.sort(key=lambda name: not name.casefold().startswith(part))
        page = [
            LabelBody(name=name, pictures=len(by_label[name]), id=int(by_label[name][0]))
            for name in held[start : start + count]
        ]
        return LabelsBody(total=len(held), labels=page)


def _ordered(shelf: Shelf, order: str, seed: int, label: str | None) -> Ids:
    ids = shelf.index.ids if label is None else shelf.labelled(label)
    if order == "random":
        return np.random.default_rng(seed).permutation(ids)
    return ids[::-1]


def _body(index: Index, id: int) -> PictureBody:
    known = index.picture(id)
    return PictureBody(id=id, name=name_of(known.path), label=known.label)
