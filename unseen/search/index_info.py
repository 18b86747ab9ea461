"""What an index is made of, in numbers: bytes, precision, and what its search finds.

Of vectors that were rounded to integers (`--precision int8`) the originals are gone. What is left
is a bound, by which no similarity with a unit vector is wrong, and an estimate: of the ten nearest
by vectors drawn at random from all that round to those that are kept, so many are found.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from unseen.search.index import Index
from unseen.search.manifest import Precision
from unseen.search.segment import FLOATS, ROUNDED, RoundedVectors
from unseen.search.verify import checksums

QUERIES, NEAREST, DEEP = 256, 10, 64


@dataclass(frozen=True)
class Info:
    """num_bytes: of vectors, thumbnails and the rest (metadata, numbers, a faiss index). recall:
    share of the ten nearest that a search finds, on some images; largest_error, mean_error: of a
    similarity, what rounding makes it wrong by at most."""

    images: int
    labels: int
    segments: int
    size: int
    precision: Precision
    num_bytes: dict[str, int]
    backend: str
    recall: float | None
    num_queries: int
    largest_error: float
    mean_error: float


def describe(index: Index) -> Info:
    """Reads lengths of files; of rounded vectors some."""
    index.require_whole()
    known, num_bytes = index.manifest, Counter[str]()
    for folder, files in checksums(index.path, known).items():
        for name in files:
            kind = {"thumbnails.bin": "thumbnails"} | dict.fromkeys(FLOATS + ROUNDED, "vectors")
            num_bytes[kind.get(name, "other")] += (folder / name).stat().st_size
    rest = np.concatenate([np.zeros(0), *(s.rest[s.alive] for s in index.segments)])
    backend, recall, num_queries = "exact", None, 0
    if known.approximate is not None:
        faiss = known.approximate
        backend, recall, num_queries = faiss.kind, faiss.recall, faiss.num_queries
    elif known.external is not None:
        backend, recall = known.external.uri, known.external.recall or None
        num_queries = known.external.num_queries
    elif known.precision == "int8" and len(index) > 1:
        num_queries = min(QUERIES, len(index))
        recall = estimated_recall(index, num_queries)
    return Info(
        images=len(index),
        labels=len(index.labels),
        segments=len(index.segments),
        size=known.model.size,
        precision=known.precision,
        num_bytes=dict(num_bytes),
        backend=backend,
        recall=recall,
        num_queries=num_queries,
        largest_error=float(rest.max(initial=0)),
        mean_error=float(rest.mean()) if len(rest) else 0.0,
    )


def estimated_recall(index: Index, num_queries: int = QUERIES, seed: int = 0) -> float:
    """Of an index of integers: the share of the ten nearest other images that stay the same when
    every vector is one that might have been rounded to it."""
    draw = np.random.default_rng(seed)
    request = draw.choice(np.flatnonzero(index.alive), num_queries, replace=False)
    queries = torch.from_numpy(index.row_vectors(request))
    depth = min(DEEP, len(index) - 1)
    allowed = None if index.alive.all() else index.alive
    values, rows = index.exact.search(queries, depth + 1, allowed)
    values.masked_fill_(rows == torch.from_numpy(request)[:, None], -np.inf)
    codes = [s.vectors.codes for s in index.segments if isinstance(s.vectors, RoundedVectors)]
    scale = torch.cat([each.scale for each in codes])[rows]  # [Q, C]
    cell = torch.from_numpy(draw.uniform(-0.5, 0.5, (*rows.shape, queries.shape[1])))
    drawn = values + (cell.float() * scale[..., None] * queries[:, None]).sum(dim=2)
    k = min(NEAREST, depth)
    rounded, true = values.topk(k).indices, drawn.topk(k).indices
    return float((rounded[:, :, None] == true[:, None]).any(dim=2).float().mean())
