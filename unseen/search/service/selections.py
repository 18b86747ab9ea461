"""Routes for many images at once: label, remove, take out as CSV or ZIP.

Whoever changes the index, or takes files as they are, has to know a token: without one these two
are refused, whoever asks.
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, HTTPException, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, StringConstraints

from unseen.core.files import InUseError
from unseen.search import export_items
from unseen.search.maintain import relabel
from unseen.search.manifest import DamagedError
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import log
from unseen.search.service.parameters import MISSING, MOST_IDS, IdList, Responses, ids_in, or_404
from unseen.search.writer import Writer

MOST_BYTES = 1_000_000_000  # of the files in a ZIP
NEEDS_TOKEN = "this needs a token: start `unseen serve` with --token new"
REFUSED: Responses = {403: {"description": "served without a token"}, **MISSING}
CHANGED: Responses = {409: {"description": "somebody else is changing the index"}, **REFUSED}

Chosen = Annotated[list[Annotated[int, Field(ge=0, le=2**62)]], Field(max_length=MOST_IDS)]


class LabelOrder(BaseModel):
    """label: what the images get; null takes it from them."""

    ids: Chosen
    label: Annotated[str, StringConstraints(strip_whitespace=True)] | None = Field(
        min_length=1, max_length=500
    )


class RemoveOrder(BaseModel):
    ids: Chosen


class ChangedBody(BaseModel):
    """changed: how many images are other than before."""

    changed: int


def add_selections(app: FastAPI, registry: IndexRegistry, may_change: bool) -> None:
    @app.post("/api/label", responses=CHANGED)
    def label(order: LabelOrder) -> ChangedBody:
        """Gives images a label in the index, whatever they had. Files stay where they are."""
        return _changed(
            registry, may_change, lambda writer: relabel(writer, order.ids, order.label)
        )

    @app.post("/api/remove", responses=CHANGED)
    def remove(order: RemoveOrder) -> ChangedBody:
        """Takes images out of the index. Files stay where they are."""
        return _changed(registry, may_change, lambda writer: writer.remove(order.ids))

    @app.get("/api/export.csv", responses=MISSING, response_class=Response)
    def export_csv(ids: IdList) -> Response:
        """id, name and label of images."""
        index = registry.snapshot.index
        content = or_404(lambda: export_items.table(index, ids_in(ids)))
        return Response(content, media_type="text/csv", headers=_as_file("images.csv"))

    too_much: Responses = {413: {"description": "too many bytes"}}

    @app.get("/api/export.zip", responses={**too_much, **REFUSED}, response_class=Response)
    def export_zip(ids: IdList) -> Response:
        """The files of images as they are, in a folder for each label, with their list."""
        _require(may_change)
        index, chosen = registry.snapshot.index, ids_in(ids)
        if or_404(lambda: export_items.size_of(index, chosen)) > MOST_BYTES:
            raise HTTPException(413, f"at most {MOST_BYTES // 10**9} GB at once: choose fewer")
        pieces = export_items.archive(index, chosen)
        return StreamingResponse(
            pieces, media_type="application/zip", headers=_as_file("images.zip")
        )


def _changed(
    registry: IndexRegistry, may_change: bool, change: Callable[[Writer], int]
) -> ChangedBody:
    _require(may_change)
    try:
        with Writer.open(registry.path) as writer:
            count = change(writer)
            writer.refresh_backend()
    except InUseError as error:
        raise HTTPException(409, "somebody else is changing the index: try again later") from error
    except DamagedError:
        raise
    except ValueError as error:
        raise HTTPException(404, "no such image") from error
    except OSError as error:  # a full disk, a folder that may not be written to
        log.error("%s cannot be changed: %s", registry.path, error)
        raise HTTPException(503, "the index cannot be written to") from error
    registry.refresh()
    return ChangedBody(changed=count)


def _require(may_change: bool) -> None:
    if not may_change:
        raise HTTPException(403, NEEDS_TOKEN)


def _as_file(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}
