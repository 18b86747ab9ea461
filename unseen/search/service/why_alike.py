"""Routes that explain: which places of the picture that asked and of one that was found make them
alike."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from unseen.data.containers import places
from unseen.data.pictures.decode import UnreadablePictureError
from unseen.experiment.trained import Picture
from unseen.reports import why_alike
from unseen.search.service.decoding import Reader
from unseen.search.service.library import Library, Shelf
from unseen.search.service.parameters import MISSING, Id, Responses, box_in, or_404
from unseen.search.sources import source_of

UNREADABLE = "one of the two pictures cannot be read, or its file is gone"
BoxText = Annotated[str | None, Query(max_length=100, description="left,top,width,height")]
Other = Annotated[int, Query(ge=0, le=2**62, description="the picture of the index that asked")]


class WhyBody(BaseModel):
    """picture: a WebP file in base64, both pictures with their heat and the strongest pairs."""

    picture: str
    sentences: list[str]


def add_explanations(app: FastAPI, library: Library, reader: Reader) -> None:
    refused: Responses = {400: {"description": UNREADABLE}, **MISSING}

    @app.post("/api/why/{id}", responses=refused)
    async def why(request: Request, id: Id, box: BoxText = None) -> WhyBody:
        """Why a picture of the index is like the one in the request's body, or a box of it."""
        content, part = await request.body(), box_in(box)

        def asked() -> WhyBody:
            return _explained(library.shelf, lambda: reader.upload(content, part), id)

        return await run_in_threadpool(asked)

    @app.get("/api/why/{id}", responses=refused)
    def why_by_id(id: Id, asked: Other, box: BoxText = None) -> WhyBody:
        """Why a picture of the index is like another one, or a box of it."""
        shelf, part = library.shelf, box_in(box)
        source = source_of(or_404(lambda: shelf.index.facts(asked)))
        if part is None:
            return _explained(shelf, lambda: source.picture, id)
        return _explained(shelf, lambda: reader.upload(places.content(Path(source.path)), part), id)


def _explained(shelf: Shelf, asked: Callable[[], Picture], id: int) -> WhyBody:
    found = source_of(or_404(lambda: shelf.index.facts(id)))
    try:
        explained = shelf.explain(asked(), found.picture)
    except (UnreadablePictureError, OSError) as error:  # whose text may hold a path
        raise HTTPException(400, UNREADABLE) from error
    file = io.BytesIO()
    why_alike.draw(explained).save(file, "WEBP", quality=85)
    picture = base64.b64encode(file.getvalue()).decode()
    return WhyBody(picture=picture, sentences=[*explained.sentences, why_alike.KEY])
