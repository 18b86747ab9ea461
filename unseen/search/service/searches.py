"""Routes that search: by pictures that are sent, by pictures of the index, with what was called
right or wrong."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from numpy.typing import NDArray

from unseen.data.pictures.decode import UnreadablePictureError
from unseen.search.service.decoding import Box, Reader
from unseen.search.service.forms import files_in
from unseen.search.service.guard import COUNT
from unseen.search.service.library import Library, Neighbour, Shelf
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
    answer_body,
    box_in,
    ids_in,
    not_found,
    or_404,
)
from unseen.search.service.together import Together

MOST_PICTURES = 8  # that ask together
ONE_BOX = "a box belongs to one picture: send one"
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


def add_searches(app: FastAPI, library: Library, reader: Reader) -> None:
    refused: Responses = {400: {"description": "not a picture"}, **MISSING}

    @app.post("/api/search", openapi_extra={"requestBody": UPLOAD}, responses=refused)
    async def search(request: Request, wanted: Annotated[Wanted, Query()]) -> AnswerBody:
        """The pictures nearest to the one in the request's body, or to a box of it. As a form
        (multipart/form-data) up to eight pictures ask together: their mean is searched."""
        box, sent = box_in(wanted.box), await _sent(request)
        if box is not None and len(sent) > 1:
            raise HTTPException(422, ONE_BOX)

        def asked() -> AnswerBody:
            shelf = library.shelf  # one model and one index for the whole request
            return _found(shelf, _embedded(shelf, reader, sent, box), wanted)

        return await run_in_threadpool(asked)

    @app.get("/api/search", responses=refused)
    def search_by_ids(ids: IdList, wanted: Annotated[Wanted, Query()]) -> AnswerBody:
        """The other pictures nearest to pictures of the index: to one, to a box of it, or to the
        mean of several."""
        shelf, asked, box = library.shelf, ids_in(ids), box_in(wanted.box)
        if not asked or (box is not None and len(asked) > 1):
            raise HTTPException(422, ONE_BOX if asked else "ids must name a picture")
        vectors = or_404(lambda: shelf.index.vectors(asked))
        if box is not None:
            path = Path(shelf.index.picture(asked[0]).path)
            try:
                vectors = _embedded(shelf, reader, [path.read_bytes()], box)
            except OSError as error:
                raise HTTPException(404, "the file of this picture is gone") from error
        return _found(shelf, vectors, wanted, asked)

    add_nearest(app, library)


def add_nearest(app: FastAPI, library: Library, prefix: str = "") -> None:
    together = Together[Neighbour, Response](lambda asked: _nearest(library.shelf, asked))

    @app.get(f"{prefix}/api/search/{{id}}", responses=MISSING, response_model=AnswerBody)
    async def search_by_id(id: Id, k: K = 24, label: Label = None) -> Response:
        """The other pictures nearest to a picture of the index."""
        return await together.ask(Neighbour(id, k, label))


def _nearest(shelf: Shelf, asked: Sequence[Neighbour]) -> list[Response | Exception]:
    """Written here, in the thread that searched."""
    made: list[Response | Exception] = []
    for one, answer in zip(asked, shelf.by_ids(asked), strict=True):
        if isinstance(answer, Exception):
            made.append(not_found())
            continue
        total = shelf.num_pictures(one.label, [one.id])
        body = answer_body(answer, shelf.calibration, total)
        made.append(Response(body.model_dump_json(), media_type="application/json"))
    return made


async def _sent(request: Request) -> list[bytes]:
    """The pictures of a request: its body, or the files of a form. Each of them counts as a request
    of its address."""
    body, kind = await request.body(), request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        return [body]
    try:
        sent = files_in(body, kind, MOST_PICTURES)
    except ValueError as error:
        raise HTTPException(400, f"this form cannot be read: {error}") from error
    if not sent:
        raise HTTPException(400, "no picture in the form: curl -F file=@picture.jpg")
    if not request.scope[COUNT](len(sent) - 1):
        raise HTTPException(429, "too many pictures a minute", {"retry-after": "2"})
    return sent


def _embedded(
    shelf: Shelf, reader: Reader, contents: Sequence[bytes], box: Box | None
) -> NDArray[np.float32]:  # [n, D]
    """One picture is decoded after the other: several take no more memory than one."""
    try:
        parts = [shelf.embed([reader.upload(content, box)]) for content in contents]
    except UnreadablePictureError as error:
        raise HTTPException(400, f"this is no picture: {error.reason}") from error
    return np.concatenate(parts)


def _found(
    shelf: Shelf, vectors: NDArray[np.float32], wanted: Wanted, asked: Sequence[int] = ()
) -> AnswerBody:
    """Pictures that ask, or were called wrong, are not found."""
    right, wrong = (ids_in(text, MOST_CALLED) for text in (wanted.right, wanted.wrong))
    judged = len(vectors) == 1 and not right and not wrong

    def answered() -> Any:
        query = shelf.query(vectors, right, wrong)
        without = {*asked, *wrong}
        answer = shelf.by_vector(query, wanted.start + wanted.k, wanted.label, without, judged)
        return answer, shelf.num_pictures(wanted.label, without)

    answer, total = or_404(answered)
    return answer_body(answer, shelf.calibration, total, wanted.start)
