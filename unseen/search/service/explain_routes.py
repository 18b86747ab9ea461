"""Routes that explain: which places of the image that asked and of one that was found make them
alike."""

import base64
import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from unseen.data.images.decode import UnreadableImageError
from unseen.reports import why_alike
from unseen.runs.trained_run import BoxedImage, ImageLike, opened
from unseen.search.file_states import embedded_content
from unseen.search.service.decoding import Reader
from unseen.search.service.index_registry import IndexRegistry, Snapshot
from unseen.search.service.parameters import MISSING, Id, Responses, box_in, or_404

UNREADABLE = "one of the two images cannot be read, or its file is gone"
BoxText = Annotated[str | None, Query(max_length=100, description="left,top,width,height")]
QueryId = Annotated[int, Query(ge=0, le=2**62, description="the image of the index that asked")]


class WhyBody(BaseModel):
    """image: a WebP file in base64, both images with their heat and the strongest pairs."""

    image: str
    sentences: list[str]


def add_explanations(app: FastAPI, registry: IndexRegistry, reader: Reader) -> None:
    refused: Responses = {400: {"description": UNREADABLE}, **MISSING}

    @app.post("/api/why/{id}", responses=refused)
    async def why(request: Request, id: Id, box: BoxText = None) -> WhyBody:
        """Why an image of the index is like the one in the request's body, or a box of it."""
        content, region = await request.body(), box_in(box)

        def answer() -> WhyBody:
            return _explained(registry.snapshot, lambda: reader.opened(content, region), id)

        return await run_in_threadpool(answer)

    @app.get("/api/why/{id}", responses=refused)
    def why_by_id(id: Id, query: QueryId, box: BoxText = None) -> WhyBody:
        """Why an image of the index is like another one, or a box of it."""
        snapshot, region = registry.snapshot, box_in(box)
        content, source = _image(snapshot, query)
        if region is None:
            return _explained(snapshot, lambda: opened(source), id)
        return _explained(snapshot, lambda: reader.opened(content, region), id)


def _explained(
    snapshot: Snapshot, request: Callable[[], AbstractContextManager[ImageLike]], id: int
) -> WhyBody:
    _, result = _image(snapshot, id)
    try:
        with request() as sent:
            first = snapshot.model.prepared(sent)
        explained = snapshot.explain(first, snapshot.model.prepared(result))
    except (UnreadableImageError, OSError) as error:  # whose text may hold a path
        raise HTTPException(400, UNREADABLE) from error
    file = io.BytesIO()
    why_alike.draw(explained).save(file, "WEBP", quality=85)
    image = base64.b64encode(file.getvalue()).decode()
    return WhyBody(image=image, sentences=[*explained.sentences, why_alike.KEY])


def _image(snapshot: Snapshot, id: int) -> tuple[bytes, ImageLike]:
    """What was embedded of an image of the index: its file, and the box that counts of it."""
    metadata = or_404(lambda: snapshot.index.metadata(id))
    content = embedded_content(metadata)
    if content is None:
        raise HTTPException(400, UNREADABLE)
    return content, content if metadata.box is None else BoxedImage(content, metadata.box)
