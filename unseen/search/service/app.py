"""The application behind `unseen serve`: the page, its JSON interface, and nothing else.

A picture is asked for by its id only: no path from a client ever reaches the file system. Uploads
are the body of the request, decoded in a guarded way and forgotten.
"""

import io
import math
import threading
from dataclasses import asdict
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from unseen.data.pictures.decode import UnreadablePictureError
from unseen.reports.embedding_map import class_colours, flatten, sample
from unseen.search.answers import Answer
from unseen.search.index import Index
from unseen.search.manifest import DamagedError
from unseen.search.service.changes import Change, changes
from unseen.search.service.decoding import BusyError, Reader
from unseen.search.service.guard import Guard, Limits, log
from unseen.search.service.library import Library
from unseen.search.service.tally import Tally

LARGE_SIDE = 1024  # of a picture shown large
MOST = 100  # results of one request
STATIC = {
    "icon.svg": "image/svg+xml",
    "page.css": "text/css",
    "look.css": "text/css",
    "main.js": "text/javascript",
    "api.js": "text/javascript",
    "results.js": "text/javascript",
    "crop.js": "text/javascript",
    "map.js": "text/javascript",
    "changes.js": "text/javascript",
    "interface.js": "text/javascript",
}

Responses = dict[int | str, dict[str, Any]]
Id = Annotated[int, Path(ge=0, le=2**62, description="of a picture of the index")]
K = Annotated[int, Query(ge=1, le=MOST, description="how many pictures")]
Label = Annotated[str | None, Query(max_length=500, description="only pictures with this label")]


Box = Annotated[
    str | None, Query(max_length=100, description="left,top,width,height, shares of the picture")
]
UPLOAD = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


class HitBody(BaseModel):
    """A picture that was found; without a calibration no probability and no verdict."""

    id: int
    name: str
    label: str | None
    similarity: float
    probability: float | None
    matched: bool | None


class AnswerBody(BaseModel):
    """Nearest pictures first. decision: a label, "unlabelled", "unknown", or null without a
    calibration."""

    decision: str | None
    hits: list[HitBody]


def create_app(
    library: Library,
    other: Library | None = None,
    limits: Limits | None = None,
    tally: Tally | None = None,
) -> Any:
    """The application; with another library also what changed between the two."""
    app = FastAPI(
        title="Unseen search",
        description="Nearest pictures of an index, by an uploaded picture or by one of its own.",
        docs_url=None,
        redoc_url=None,
    )
    reader = Reader()
    app.add_exception_handler(DamagedError, _damaged)
    app.add_exception_handler(BusyError, _busy)
    _pages(app)
    _facts(app, library)
    _searches(app, library, reader)
    _pictures(app, library, reader, "")
    _map(app, library)
    if other is not None:
        _pictures(app, other, reader, "/other")
        _changes(app, library, other)
    return Guard(app, limits or Limits(), tally)


def _damaged(request: Request, error: Exception) -> Response:
    log.error("%s", error)  # with its path, which is nobody else's
    return JSONResponse({"detail": "the index is damaged: `unseen index repair`"}, status_code=503)


def _busy(request: Request, error: Exception) -> Response:
    told = {"detail": "too many large pictures at once: try again in a moment"}
    return JSONResponse(told, status_code=503, headers={"retry-after": "2"})


def _pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return Response(_file("index.html"), media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    def interface() -> Response:
        return Response(_file("interface.html"), media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(404, "no such file")
        return Response(_file(name), media_type=STATIC[name])


def _facts(app: FastAPI, library: Library) -> None:
    @app.get("/api/health")
    def health() -> dict[str, Any]:
        """Whether the service answers, and from what."""
        index = library.shelf.index
        return {
            "status": "ok",
            "pictures": len(index),
            "identity": index.manifest.identity,
            "generation": index.manifest.generation,
            "model": index.manifest.model.fingerprint,
        }

    @app.get("/api/index")
    def index() -> dict[str, Any]:
        """Labels with their numbers of pictures, and what the threshold means."""
        shelf = library.shelf
        calibration, told = shelf.calibration, None
        if calibration is not None:
            told = {
                "threshold": calibration.threshold,
                "bound": calibration.bound,
                "confidence": calibration.confidence,
            }
        labels = {name: len(ids) for name, ids in shelf.by_label.items()}
        return {"pictures": len(shelf.index), "labels": labels, "calibration": told}


def _searches(app: FastAPI, library: Library, reader: Reader) -> None:
    refused: Responses = {
        400: {"description": "not a picture"},
        404: {"description": "no such label"},
    }

    @app.post("/api/search", openapi_extra={"requestBody": UPLOAD}, responses=refused)
    async def search(
        request: Request, k: K = 24, label: Label = None, box: Box = None
    ) -> AnswerBody:
        """The pictures nearest to the one in the request's body, or to a box of it."""
        part = _box(box)
        content = await request.body()

        def asked() -> Answer:
            shelf = library.shelf  # one model and one index for the whole request
            try:
                vector = shelf.embed(reader.upload(content, part))
            except UnreadablePictureError as error:
                raise HTTPException(400, f"this is no picture: {error.reason}") from error
            return _or_404(lambda: shelf.by_vector(vector, k, label))

        return _found(await run_in_threadpool(asked))

    @app.get("/api/search/{id}", responses={404: {"description": "no such picture or label"}})
    def search_by_id(id: Id, k: K = 24, label: Label = None) -> AnswerBody:
        """The other pictures nearest to a picture of the index."""
        return _found(_or_404(lambda: library.shelf.by_id(id, k, label)))


def _pictures(app: FastAPI, library: Library, reader: Reader, prefix: str) -> None:
    missing: Responses = {404: {"description": "no such picture"}}

    @app.get(f"{prefix}/api/pictures/{{id}}/thumbnail", responses=missing, response_class=Response)
    def thumbnail(id: Id) -> Response:
        """A small WebP picture."""
        content = _or_404(lambda: library.shelf.index.thumbnail(id))
        return Response(content, media_type="image/webp", headers={"cache-control": "max-age=300"})

    @app.get(f"{prefix}/api/pictures/{{id}}", responses=missing, response_class=Response)
    def picture(id: Id) -> Response:
        """The picture as a JPEG of at most 1024 pixels; its thumbnail where the file is gone."""
        found = _or_404(lambda: library.shelf.index.picture(id))
        try:
            image = reader.shown(FilePath(found.path))
        except (UnreadablePictureError, BusyError):
            return thumbnail(id)
        image.thumbnail((LARGE_SIDE, LARGE_SIDE))
        written = io.BytesIO()
        image.save(written, "JPEG", quality=88)
        return Response(written.getvalue(), media_type="image/jpeg")


def _map(app: FastAPI, library: Library) -> None:
    kept: dict[Index, dict[str, Any]] = {}  # one
    making = threading.Lock()

    def made(index: Index) -> None:
        with making:
            if index in kept:
                return
            try:
                drawn = map_of(index)
            except Exception:
                log.exception("the map of %s cannot be drawn", index.path)
                drawn = {"status": "cannot be drawn", "ids": []}
            kept.clear()
            kept[index] = drawn

    @app.get("/api/map", responses={202: {"description": "being drawn: ask again"}})
    def embedding_map(response: Response) -> dict[str, Any]:
        """Places of a sample of the pictures (t-SNE), their labels and colours."""
        index = library.shelf.index
        if (drawn := kept.get(index)) is not None:
            return drawn
        if not making.locked():
            threading.Thread(target=made, args=(index,), daemon=True).start()
        response.status_code = 202
        return {"status": "being drawn"}


def map_of(index: Index) -> dict[str, Any]:
    """Two coordinates within -1..1 for at most 3,000 pictures."""
    facts = list(index.every())
    names = sorted({fact.label for _, fact in facts if fact.label is not None})
    place_of: dict[str | None, int] = {name: place for place, name in enumerate(names)}
    classes = np.array([place_of.get(fact.label, -1) for _, fact in facts], dtype=np.int64)
    chosen = sample(classes)
    ids = index.ids[chosen]
    if len(ids) < 4:
        return {"status": "too few pictures", "ids": []}
    place = flatten(index.vectors(ids), index.manifest.model.normalise)
    place -= (place.max(axis=0) + place.min(axis=0)) / 2
    place /= np.abs(place).max() or 1.0
    return {
        "status": "ready",
        "ids": ids.tolist(),
        "x": np.round(place[:, 0], 4).tolist(),
        "y": np.round(place[:, 1], 4).tolist(),
        "classOf": classes[chosen].tolist(),
        "names": names,
        "colours": class_colours(len(names)),
    }


def _changes(app: FastAPI, library: Library, other: Library) -> None:
    comparing = threading.Lock()

    @lru_cache(maxsize=1)
    def compared(first: Index, second: Index) -> list[Change]:
        return changes(first, second)

    @app.get("/api/changes")
    def what_changed(
        start: Annotated[int, Query(ge=0, le=10**6)] = 0,
        count: Annotated[int, Query(ge=1, le=MOST)] = 24,
    ) -> dict[str, Any]:
        """Pictures asked of both runs, those whose verdict changed first."""
        with comparing:
            found = compared(library.shelf.index, other.shelf.index)
        gained = sum(c.right is False and c.other_right is True for c in found)
        lost = sum(c.right is True and c.other_right is False for c in found)
        shown = [asdict(change) for change in found[start : start + count]]
        return {"total": len(found), "gained": gained, "lost": lost, "changes": shown}

    @app.get("/other/api/search/{id}", responses={404: {"description": "no such picture or label"}})
    def search_other(id: Id, k: K = 24, label: Label = None) -> AnswerBody:
        """As /api/search/{id}, of the other index."""
        return _found(_or_404(lambda: other.shelf.by_id(id, k, label)))


def _or_404(look_up: Any) -> Any:
    try:
        return look_up()
    except DamagedError:
        raise
    except ValueError as error:
        raise HTTPException(404, "no such picture or label") from error


def _found(answer: Answer) -> AnswerBody:
    """Paths stay here: a client sees a file's name."""
    hits = [
        HitBody(
            id=hit.id,
            name=hit.path.replace("\\", "/").rpartition("/")[2],
            label=hit.label,
            similarity=hit.similarity,
            probability=hit.probability,
            matched=hit.matched,
        )
        for hit in answer.hits
    ]
    return AnswerBody(decision=answer.decision, hits=hits)


def _box(text: str | None) -> tuple[float, float, float, float] | None:
    if text is None:
        return None
    try:
        left, top, width, height = (float(word) for word in text.split(","))
    except ValueError:
        raise HTTPException(422, "box must be left,top,width,height") from None
    if not all(map(math.isfinite, (left, top, width, height))) or not (
        0 <= left < 1 and 0 <= top < 1 and width > 0 and height > 0
    ):
        raise HTTPException(422, "box must lie within the picture, as shares from 0 to 1")
    return left, top, min(width, 1 - left), min(height, 1 - top)


@cache
def _file(name: str) -> bytes:
    package = "unseen.reports" if name == "look.css" else "unseen.search.service"
    place = resources.files(package)
    return (place / name if name == "look.css" else place / "page" / name).read_bytes()
