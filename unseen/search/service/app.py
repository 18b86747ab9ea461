"""The application behind `unseen serve`: the page, its JSON interface, and nothing else.

A picture is asked for by its id only: no path from a client ever reaches the file system. Uploads
are decoded in a guarded way and forgotten.
"""

import threading
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from unseen.experiment.calibration import why_impossible
from unseen.search import manifest as manifests
from unseen.search.index import Index
from unseen.search.manifest import DamagedError
from unseen.search.service.changes import Change, changes
from unseen.search.service.decoding import BusyError, Reader
from unseen.search.service.guard import Guard, Limits, log
from unseen.search.service.library import Library, Shelf
from unseen.search.service.maps import add_map
from unseen.search.service.metrics import Metrics
from unseen.search.service.parameters import K, Start
from unseen.search.service.pictures import add_browsing, add_pictures
from unseen.search.service.searches import add_nearest, add_searches
from unseen.search.service.selections import add_selections
from unseen.search.service.tally import Tally
from unseen.search.service.why_alike import add_explanations

PAGE = resources.files("unseen.search.service") / "page"
CALIBRATE = "`unseen calibrate RUN` says what a similarity means"
LOOK = resources.files("unseen.reports") / "look.css"
KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
STATIC = {
    file.name: file for file in (LOOK, *PAGE.iterdir()) if file.name.rpartition(".")[2] in KINDS
}


def create_app(
    library: Library,
    other: Library | None = None,
    limits: Limits | None = None,
    shared: Path | None = None,
) -> Any:
    """The application; with another library also what changed between the two. Only with a token
    may pictures be labelled, removed, or taken out as files. shared: a folder in which processes
    count together."""
    app = FastAPI(
        title="Unseen search",
        description="Nearest pictures of an index, by an uploaded picture or by one of its own.",
        docs_url=None,
        redoc_url=None,
    )
    reader, limits = Reader(), limits or Limits()
    may_change = limits.token is not None
    app.add_exception_handler(DamagedError, _damaged)
    app.add_exception_handler(BusyError, _busy)
    _pages(app)
    _facts(app, library, may_change, other is not None)
    add_searches(app, library, reader)
    add_explanations(app, library, reader)
    add_browsing(app, library)
    add_pictures(app, library, reader)
    add_selections(app, library, may_change)
    add_map(app, library)
    if other is not None:
        add_pictures(app, other, reader, "/other")
        _changes(app, library, other)
    metrics = Metrics(_routes(app), None if shared is None else shared / "metrics")
    _metrics(app, library, metrics)
    tally = Tally(None if shared is None else shared / "tally")
    probes = {"/health": lambda: True, "/ready": library.is_ready}
    return Guard(app, limits, tally, metrics, probes)


def _routes(app: FastAPI) -> list[str]:
    return [route.path for route in app.routes if isinstance(route, APIRoute)] + ["/metrics"]


def _metrics(app: FastAPI, library: Library, metrics: Metrics) -> None:
    @app.get("/metrics", include_in_schema=False)
    def told() -> Response:
        index = library.shelf.index
        now = {
            "index_pictures": len(index),
            "index_generation": index.manifest.generation,
            "index_mapped_pictures": library.shelf.num_mapped,
        }
        return Response(metrics.text(now), media_type="text/plain; version=0.0.4")


def _damaged(request: Request, error: Exception) -> Response:
    log.error("%s", error)  # with its path, which is nobody else's
    return JSONResponse({"detail": "the index is damaged: `unseen index repair`"}, status_code=503)


def _busy(request: Request, error: Exception) -> Response:
    body = {"detail": "too many large pictures at once: try again in a moment"}
    return JSONResponse(body, status_code=503, headers={"retry-after": "2"})


def _pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return Response((PAGE / "index.html").read_bytes(), media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    def interface() -> Response:
        return Response((PAGE / "interface.html").read_bytes(), media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(404, "no such file")
        return Response(_file(name), media_type=KINDS[name.rpartition(".")[2]])


def _facts(app: FastAPI, library: Library, may_change: bool, compares: bool) -> None:
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
        """What the index holds and who made it, what the threshold means, what may be done."""
        return {**facts_of(library.shelf), "may_change": may_change, "compares": compares}


def facts_of(shelf: Shelf) -> dict[str, Any]:
    """Numbers and names that may leave the service: no path."""
    calibration, model, known = shelf.calibration, shelf.model, shelf.index.manifest
    changed = (shelf.index.path / manifests.NAME).stat().st_mtime
    store, found = "exact", 1.0
    if known.outside is not None:
        store = "milvus" if known.milvus else "lance"
        found = known.outside.recall or 1.0
    if known.approximate is not None:
        store, found = known.approximate.kind, known.approximate.recall
    return {
        "pictures": len(shelf.index),
        "labels": len(shelf.by_label),
        "labelled": sum(map(len, shelf.by_label.values())),
        "model": {
            "run": model.folder.path.name,
            "backbone": model.config.backbone,
            "size": known.model.size,
            "precision": model.config.precision,
            "vectors": known.precision,
            "fingerprint": known.model.fingerprint,
        },
        "search": {"store": store, "recall": found},
        "changed": datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds"),
        "calibration": None
        if calibration is None
        else {
            "threshold": calibration.threshold,
            "bound": calibration.bound,
            "confidence": calibration.confidence,
        },
        "uncalibrated": None if calibration else why_impossible(model.folder) or CALIBRATE,
    }


def _changes(app: FastAPI, library: Library, other: Library) -> None:
    comparing = threading.Lock()

    @lru_cache(maxsize=1)
    def compared(first: Index, second: Index) -> list[Change]:
        return changes(first, second)

    @app.get("/api/changes")
    def what_changed(start: Start = 0, count: K = 24) -> dict[str, Any]:
        """Pictures asked of both runs, those whose verdict changed first."""
        with comparing:
            found = compared(library.shelf.index, other.shelf.index)
        gained = sum(c.right is False and c.other_right is True for c in found)
        lost = sum(c.right is True and c.other_right is False for c in found)
        shown = [asdict(change) for change in found[start : start + count]]
        return {"total": len(found), "gained": gained, "lost": lost, "changes": shown}

    add_nearest(app, other, "/other")


@cache
def _file(name: str) -> bytes:
    return STATIC[name].read_bytes()
