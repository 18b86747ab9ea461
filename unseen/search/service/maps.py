"""The route of the map: places of the images on a plane, drawn once for an index."""

import threading
from typing import Any

import numpy as np
from fastapi import FastAPI, Response

from unseen.reports.embedding_map import class_colors, flatten, sample
from unseen.search.index import Index
from unseen.search.service.index_registry import IndexRegistry
from unseen.search.service.middleware import log


def add_map(app: FastAPI, registry: IndexRegistry) -> None:
    cache: dict[Index, dict[str, Any]] = {}  # one
    making = threading.Lock()

    def draw(index: Index) -> None:
        with making:
            if index in cache:
                return
            try:
                drawn = map_of(index)
            except Exception:
                log.exception("the map of %s cannot be drawn", index.path)
                drawn = {"status": "cannot be drawn", "ids": []}
            cache.clear()
            cache[index] = drawn

    @app.get("/api/map", responses={202: {"description": "being drawn: ask again"}})
    def embedding_map(response: Response) -> dict[str, Any]:
        """Places of a sample of the images (t-SNE), their labels and colours."""
        index = registry.snapshot.index
        if (drawn := cache.get(index)) is not None:
            return drawn
        if not making.locked():
            threading.Thread(target=draw, args=(index,), daemon=True).start()
        response.status_code = 202
        return {"status": "being drawn"}


def map_of(index: Index) -> dict[str, Any]:
    """Two coordinates within -1..1 for at most 3,000 images."""
    metadata = list(index.every())
    names = sorted({fact.label for _, fact in metadata if fact.label is not None})
    place_of: dict[str | None, int] = {name: place for place, name in enumerate(names)}
    classes = np.array([place_of.get(fact.label, -1) for _, fact in metadata], dtype=np.int64)
    chosen = sample(classes)
    ids = index.ids[chosen]
    if len(ids) < 4:
        return {"status": "too few images", "ids": []}
    place = flatten(index.vectors(ids), index.manifest.model.normalize)
    place -= (place.max(axis=0) + place.min(axis=0)) / 2
    place /= np.abs(place).max() or 1.0
    return {
        "status": "ready",
        "ids": ids.tolist(),
        "x": np.round(place[:, 0], 4).tolist(),
        "y": np.round(place[:, 1], 4).tolist(),
        "classOf": classes[chosen].tolist(),
        "names": names,
        "colors": class_colors(len(names)),
    }
