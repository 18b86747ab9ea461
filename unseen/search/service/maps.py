"""The route of the map: places of the pictures on a plane, drawn once for an index."""

import threading
from typing import Any

import numpy as np
from fastapi import FastAPI, Response

from unseen.reports.embedding_map import class_colours, flatten, sample
from unseen.search.index import Index
from unseen.search.service.guard import log
from unseen.search.service.library import Library


def add_map(app: FastAPI, library: Library) -> None:
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
