"""Queries that two layers of a run answer differently, as a figure from stored thumbnails."""

import base64
import io
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from unseen.core.contracts import Dataset
from unseen.reports.stored_run import LayerAnswers
from unseen.reports.thumbnails import sheet
from unseen.reproductions.against_source import drawn
from unseen.reproductions.charts import bare
from unseen.studies.findings import Section

SHOWN, TILE, SEED = 5, 64, 0


def result(answers: LayerAnswers, dataset: Dataset) -> dict[str, Any] | None:
    """Some queries right at one layer and wrong at another, both ways: the last layer and the best
    of the others. None where the run has one layer."""
    last = len(answers.names) - 1
    if last < 1:
        return None
    recall = np.nanmean(answers.right[:-1], axis=1)
    other = last - 1 - int(recall[::-1].argmax())  # of equals the nearest to the loss
    rng, kinds = np.random.default_rng(SEED), []
    for better, worse in ((other, last), (last, other)):
        differ = np.flatnonzero(
            (answers.right[better] == 1)
            & (answers.right[worse] == 0)
            & (answers.nearest[worse] >= 0)
        )
        some = rng.permutation(differ)[:SHOWN]
        items = [
            int(answers.indices[place])
            for query in some
            for place in (query, answers.nearest[better, query], answers.nearest[worse, query])
        ]
        uri, columns = sheet(dataset, items, TILE) if items else ("", 1)
        names = {"better": answers.names[better], "worse": answers.names[worse]}
        kinds.append(names | {"count": len(differ), "sheet": uri, "columns": columns,
                              "shown": len(some)})  # fmt: skip
    return {"kinds": kinds, "queries": int((~np.isnan(answers.right[last])).sum())}


def section(stored: dict[str, Any] | None) -> list[Section]:
    """What was found, if anything was."""
    if not stored:
        return []
    words = "; ".join(
        f"{kind['count']:,} right at {kind['better']} and wrong at {kind['worse']}"
        for kind in stored["kinds"]
    )
    figures = [
        drawn(
            f"disagree_{kind['better']}".replace(".", "_"),
            f"Queries (left) with what {kind['better']} finds first, which is right (middle), and "
            f"what {kind['worse']} finds, which is wrong (right); drawn at random.",
            partial(_figure, kind),
        )
        for kind in stored["kinds"]
        if kind["shown"] and kind["sheet"]  # images of an archived study stay where they were
    ]
    caption = f"NetA, of {stored['queries']:,} queries on unseen classes: {words}."
    return [Section("Where layers disagree", [caption], [], figures)]


def _figure(kind: dict[str, Any]) -> Figure:
    content = base64.b64decode(kind["sheet"].partition(",")[2])
    whole = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    columns, count = int(kind["columns"]), int(kind["shown"])
    figure = Figure(figsize=(1.75 * count, 0.9), layout="constrained")
    grid = figure.subplots(1, count, squeeze=False)[0]
    for place, ax in enumerate(grid):
        row = [_tile(whole, 3 * place + i, columns) for i in range(3)]
        gap = np.full((TILE, 4, 3), 255, np.uint8)
        ax.imshow(np.concatenate([row[0], gap, row[1], gap, row[2]], axis=1))
        bare(ax)
    return figure


def _tile(whole: Any, place: int, columns: int) -> Any:
    y, x = TILE * (place // columns), TILE * (place % columns)
    return whole[y : y + TILE, x : x + TILE]
