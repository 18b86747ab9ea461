"""Routes that search: by images that are sent, by images of the index, with what was called
right or wrong."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from numpy.typing import NDArray
from torch import Tensor

from unseen.data.images.decode import UnreadableImageError
from unseen.search.file_states import embedded_content
from unseen.search.rerank import FIRST, prepared_again
from unseen.search.service.decoding import Box, Reader
from unseen.search.service.forms import files_in
from unseen.search.service.index_registry import IndexRegistry, Neighbor, Snapshot
from unseen.search.service.middleware import COUNT
from unseen.search.service.parameters import (
    MISSING,
    MOST_CALLED,
    AnswerBody,
    Id,
    IdList,
    K,
    Label,
    Responses,
    Wanted,
    Where,
    answer_body,
    box_in,
    http_error,
    ids_in,
    or_404,
)
from unseen.search.service.request_batching import RequestBatcher

MOST_IMAGES = 8  # that ask together
ONE_BOX = "a box belongs to one image: send one"
BINARY = {"type": "string", "format": "binary"}
UPLOAD = {
    "required": True,
    "content": {
        "application/octet-stream": {"schema": BINARY},
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {
                    "file": {"type": "array", "items": BINARY, "minItems": 1},
                },
            }
        },
    },
}


def add_searches(app: FastAPI, registry: IndexRegistry, reader: Reader) -> None:
    refused: Responses = {400: {"description": "not an image"}, **MISSING}

    @app.post("/api/search", openapi_extra={"requestBody": UPLOAD}, responses=refused)
    async def search(request: Request, wanted: Annotated[Wanted, Query()]) -> AnswerBody:
        """The images nearest to the one in the request's body, or to a box of it. As a form
        (multipart/form-data) up to eight images ask together: their mean is searched."""
        _count(request, wanted)
        box, sent = box_in(wanted.box), await _sent(request)
        if box is not None and len(sent) > 1:
            raise HTTPException(422, ONE_BOX)

        def answer() -> AnswerBody:
            snapshot = registry.snapshot  # one model and one index for the whole request
            images = _images(snapshot, reader, sent, box)
            return _result(snapshot, snapshot.vectors(images), wanted, images=images)

        return await run_in_threadpool(answer)

    @app.get("/api/search", responses=refused)
    def search_by_ids(http: Request, ids: IdList, wanted: Annotated[Wanted, Query()]) -> AnswerBody:
        """The other images nearest to images of the index: to one, to a box of it, or to the
        mean of several."""
        snapshot, request, box = registry.snapshot, ids_in(ids), box_in(wanted.box)
        if not request or (box is not None and len(request) > 1):
            raise HTTPException(422, ONE_BOX if request else "ids must name an image")
        vectors = or_404(lambda: snapshot.index.vectors(request))
        _count(http, wanted)
        images = None
        if box is not None:
            content = embedded_content(snapshot.index.metadata(request[0]))
            if content is None:
                raise HTTPException(404, "the file of this image is gone, or another one")
            images = _images(snapshot, reader, [content], box)
            vectors = snapshot.vectors(images)
        elif wanted.rerank == "local" and len(request) == 1:
            image = prepared_again(snapshot.index, snapshot.model, request[0])
            images = None if image is None else image[None]
        return _result(snapshot, vectors, wanted, request, images)

    add_nearest(app, registry)


def add_nearest(app: FastAPI, registry: IndexRegistry, prefix: str = "") -> None:
    batcher = RequestBatcher[Neighbor, Response](
        lambda request: _nearest(registry.snapshot, request)
    )

    @app.get(f"{prefix}/api/search/{{id}}", responses=MISSING, response_model=AnswerBody)
    async def search_by_id(id: Id, k: K = 24, label: Label = None, where: Where = None) -> Response:
        """The other images nearest to an image of the index."""
        return await batcher.ask(Neighbor(id, k, label, where))


def _nearest(snapshot: Snapshot, request: Sequence[Neighbor]) -> list[Response | Exception]:
    """Written here, in the thread that searched."""
    made: list[Response | Exception] = []
    for one, answer in zip(request, snapshot.by_ids(request), strict=True):
        if isinstance(answer, Exception):
            made.append(http_error(answer))
            continue
        total = snapshot.num_images(snapshot.chosen(one.label, one.where), [one.id])
        body = answer_body(answer, snapshot.calibration, total)
        made.append(Response(body.model_dump_json(), media_type="application/json"))
    return made


async def _sent(request: Request) -> list[bytes]:
    """The images of a request: its body, or the files of a form. Each of them counts as a request
    of its address."""
    body, kind = await request.body(), request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        return [body]
    try:
        sent = files_in(body, kind, MOST_IMAGES)
    except ValueError as error:
        raise HTTPException(400, f"this form cannot be read: {error}") from error
    if not sent:
        raise HTTPException(400, "no image in the form: curl -F file=@image.jpg")
    if not request.scope[COUNT](len(sent) - 1):
        raise HTTPException(429, "too many images a minute", {"retry-after": "2"})
    return sent


def _count(request: Request, wanted: Wanted) -> None:
    """Who compares the places of the first images asks for as many."""
    if wanted.rerank == "local" and not request.scope[COUNT](FIRST - 1):
        raise HTTPException(429, "too many images a minute", {"retry-after": "2"})


def _images(
    snapshot: Snapshot, reader: Reader, contents: Sequence[bytes], box: Box | None
) -> Tensor:  # [n, 3, s, s]
    """Read as the files of the index were, one after the other: several take no more memory."""
    images = []
    try:
        for content in contents:
            with reader.opened(content, box) as image:
                images.append(snapshot.model.prepared(image))
    except UnreadableImageError as error:
        raise HTTPException(400, f"this is no image: {error.reason}") from error
    return torch.stack(images)


def _result(
    snapshot: Snapshot,
    vectors: NDArray[np.float32],
    wanted: Wanted,
    request: Sequence[int] = (),
    images: Tensor | None = None,
) -> AnswerBody:
    """Images that ask, or were called wrong, are not found. images: that ask, if they were read."""
    search = None
    if wanted.rerank is not None:
        image = images[0] if images is not None and len(images) == 1 else None
        try:
            search = snapshot.reranker(wanted.rerank, image)
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
    right, wrong = (ids_in(text, MOST_CALLED) for text in (wanted.right, wanted.wrong))
    evaluated = len(vectors) == 1 and not right and not wrong

    def answered() -> Any:
        query = snapshot.query(vectors, right, wrong)
        without = {*request, *wrong}
        chosen = snapshot.chosen(wanted.label, wanted.where)
        answer = snapshot.by_vector(
            query, wanted.start + wanted.k, chosen, without, evaluated, search
        )
        return answer, snapshot.num_images(chosen, without)

    answer, total = or_404(answered)
    return answer_body(answer, snapshot.calibration, total, wanted.start)
