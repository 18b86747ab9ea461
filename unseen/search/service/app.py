"""The application behind `unseen serve`: the page, its JSON interface, and nothing else.

An image is asked for by its id only: no path from a client ever reaches the file system. Uploads
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
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from unseen.runs.calibrate_run import why_impossible
from unseen.search import manifest as manifests
from unseen.search.index import Index
from unseen.search.manifest import DamagedError
from unseen.search.service.changes import Change, changes
from unseen.search.service.decoding import BusyError, Reader
from unseen.search.service.explain_routes import add_explanations
from unseen.search.service.image_routes import add_browsing, add_images
from unseen.search.service.index_registry import IndexRegistry, Snapshot
from unseen.search.service.maps import add_map
from unseen.search.service.metrics import Metrics
from unseen.search.service.middleware import AccessControl, Limits, log
from unseen.search.service.parameters import WRONG, K, Start
from unseen.search.service.rate_limiter import RateLimiter
from unseen.search.service.searches import add_nearest, add_searches
from unseen.search.service.selections import add_selections

PAGE = resources.files("unseen.search.service") / "page"
CALIBRATE = "`unseen calibrate RUN` says what a similarity means"
STYLE = resources.files("unseen.reports") / "style.css"
KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
STATIC = {
    file.name: file for file in (STYLE, *PAGE.iterdir()) if file.name.rpartition(".")[2] in KINDS
}


def create_app(
    registry: IndexRegistry,
    other: IndexRegistry | None = None,
    limits: Limits | None = None,
    shared: Path | None = None,
) -> Any:
    """The application; with another registry also what changed between the two. Only with a token
    may images be labelled, removed, or taken out as files. shared: a folder in which processes
    count together."""
    app = FastAPI(
        title="Unseen search",
        description="Nearest images of an index, by an uploaded image or by one of its own.",
        docs_url=None,
        redoc_url=None,
        responses=WRONG,
    )
    reader, limits = Reader(), limits or Limits()
    may_change = limits.token is not None
    app.add_exception_handler(DamagedError, _damaged)
    app.add_exception_handler(BusyError, _busy)
    app.add_exception_handler(RequestValidationError, _wrong)
    _pages(app)
    _metadata(app, registry, may_change, other is not None)
    add_searches(app, registry, reader)
    add_explanations(app, registry, reader)
    add_browsing(app, registry)
    add_images(app, registry, reader)
    add_selections(app, registry, may_change)
    add_map(app, registry)
    if other is not None:
        add_images(app, other, reader, "/other")
        _changes(app, registry, other)
    metrics = Metrics(_routes(app), None if shared is None else shared / "metrics")
    _metrics(app, registry, metrics)
    rate_limiter = RateLimiter(None if shared is None else shared / "rate limiter")
    probes = {"/health": lambda: True, "/ready": registry.is_ready}
    return AccessControl(app, limits, rate_limiter, metrics, probes)


def _routes(app: FastAPI) -> list[str]:
    return [route.path for route in app.routes if isinstance(route, APIRoute)] + ["/metrics"]


def _metrics(app: FastAPI, registry: IndexRegistry, metrics: Metrics) -> None:
    @app.get("/metrics", include_in_schema=False)
    def message() -> Response:
        index = registry.snapshot.index
        now = {
            "index_images": len(index),
            "index_generation": index.manifest.generation,
            "index_compatible_images": registry.snapshot.num_compatible,
        }
        return Response(metrics.text(now), media_type="text/plain; version=0.0.4")


def _damaged(request: Request, error: Exception) -> Response:
    log.error("%s", error)  # with its path, which is nobody else's
    detail = "the index is damaged: `unseen index verify` names the file"
    return JSONResponse({"detail": detail}, status_code=503)


def _busy(request: Request, error: Exception) -> Response:
    body = {"detail": "too many large images at once: try again in a moment"}
    return JSONResponse(body, status_code=503, headers={"retry-after": "2"})


def _wrong(request: Request, error: Exception) -> Response:
    """Which value and what is wrong with it, never the value: it may be anything."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"][1:])) or str(first["loc"][0])
    return JSONResponse({"detail": f"{where}: {first['msg']}"}, status_code=422)


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


def _metadata(app: FastAPI, registry: IndexRegistry, may_change: bool, compares: bool) -> None:
    @app.get("/api/health")
    def health() -> dict[str, Any]:
        """Whether the service answers, and from what."""
        index = registry.snapshot.index
        return {
            "status": "ok",
            "images": len(index),
            "identity": index.manifest.identity,
            "generation": index.manifest.generation,
            "model": index.manifest.model.fingerprint,
        }

    @app.get("/api/index")
    def index() -> dict[str, Any]:
        """What the index holds and who made it, what the threshold means, what may be done."""
        return {**metadata_of(registry.snapshot), "may_change": may_change, "compares": compares}


def metadata_of(snapshot: Snapshot) -> dict[str, Any]:
    """Numbers and names that may leave the service: no path."""
    calibration, model, known = snapshot.calibration, snapshot.model, snapshot.index.manifest
    changed = (snapshot.index.path / manifests.NAME).stat().st_mtime
    backend, result = "exact", 1.0
    if known.external is not None:
        backend, result = known.external.kind, known.external.recall or 1.0
    if known.approximate is not None:
        backend, result = known.approximate.kind, known.approximate.recall
    return {
        "images": len(snapshot.index),
        "labels": len(snapshot.by_label),
        "labelled": sum(map(len, snapshot.by_label.values())),
        "model": {
            "run": model.folder.path.name,
            "backbone": model.config.model.backbone,
            "size": known.model.size,
            "precision": model.config.training.precision,
            "fingerprint": known.model.fingerprint,
        },
        "search": {"backend": backend, "recall": result},
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


def _changes(app: FastAPI, registry: IndexRegistry, other: IndexRegistry) -> None:
    comparing = threading.Lock()

    @lru_cache(maxsize=1)
    def compared(first: Index, second: Index) -> list[Change]:
        return changes(first, second)

    @app.get("/api/changes")
    def what_changed(start: Start = 0, count: K = 24) -> dict[str, Any]:
        """Images asked of both runs, those whose conclusion changed first."""
        with comparing:
            result = compared(registry.snapshot.index, other.snapshot.index)
        gained = sum(c.right is False and c.other_right is True for c in result)
        lost = sum(c.right is True and c.other_right is False for c in result)
        shown = [asdict(change) for change in result[start : start + count]]
        return {"total": len(result), "gained": gained, "lost": lost, "changes": shown}

    add_nearest(app, other, "/other")


@cache
def _file(name: str) -> bytes:
    return STATIC[name].read_bytes()
