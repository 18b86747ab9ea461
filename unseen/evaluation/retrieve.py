"""Exact nearest neighbours of every query, with labels, as the retrieval metrics want them.

    self-retrieval   every item asks, all others answer; an item is removed from its own list by
                     position, never for being first (a copy of it may be first)
    query/gallery    `gallery_embeddings` answer; `positions` says where in the gallery a query
                     itself stands, if it does
    ties             similarities equal on the grid of neighbors/space.py: wrong items come
                     first, also where the list ends, so that a collapsed embedding scores 0
    lone queries     no item of the same class in the gallery: num_relevant is 0
    ignore groups    gallery items of the query's group (same camera, same sequence) do not answer
                     and do not count as relevant; a negative group ignores nothing

Neighbours are selected with fast products. The few lists whose order those cannot resolve (items
closer together than the tolerance, or a list that ends among near-equals) are resolved in float64,
so neighbours depend neither on the size of blocks nor on the precision of the first pass. Memory is
that of neighbors/select.py; never queries x gallery.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unseen.core.contracts import Neighbors, Progress
from unseen.core.relevance import AnyLabels
from unseen.evaluation.ranks import graded_ranks, positive_ranks
from unseen.evaluation.relevance_filters import RelevanceFilter, filter_of
from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.exact_order import resolve
from unseen.neighbors.select import Precision, select
from unseen.neighbors.space import Space, make_space, precise

LIST_BYTES = 40  # a neighbour costs while lists are resolved


def retrieve(
    embeddings: Tensor,
    labels: AnyLabels,
    depth: int,
    *,
    gallery_embeddings: Tensor | None = None,
    gallery_labels: AnyLabels | None = None,
    positions: Tensor | None = None,
    ignore_groups: Tensor | None = None,
    gallery_ignore_groups: Tensor | None = None,
    normalize: bool = True,
    ranks: bool = False,
    grades: bool = False,
    block: int = 1024,
    memory: int = 2**30,
    progress: Progress | None = None,
    precision: Precision = "auto",
) -> Neighbors:
    """The `depth` nearest gallery items of each query; `ranks` also ranks every relevant one,
    `grades` every item that is related at all.

    `positions` [Q] holds a query's own place in the gallery, or -1. `memory` bounds the bytes of
    the running lists. Raises ValueError for NaN or infinite embeddings.
    """
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    if depth < 0:
        raise ValueError(f"depth must be at least 0, got {depth}")
    with precise(embeddings.device):
        space = make_space(embeddings, gallery_embeddings, normalize)
        relevance_filter = filter_of(
            space,
            labels,
            gallery_labels,
            positions=positions,
            groups=ignore_groups,
            gallery_groups=gallery_ignore_groups,
        )
        result = _nothing(relevance_filter)
        if _width(space, depth):
            values, items = select(
                space,
                _width(space, depth),
                exclude=relevance_filter.exclude,
                block=block,
                memory=memory,
                progress=progress,
                precision=precision,
            )
            result = _evaluated(space, relevance_filter, values, items, depth)
        if ranks:
            result = replace(result, ranks=positive_ranks(space, relevance_filter))
        return replace(result, graded=graded_ranks(space, relevance_filter)) if grades else result


def in_chunks(
    space: Space,
    filters: Sequence[RelevanceFilter],
    depth: int,
    *,
    ranks: bool,
    grades: bool = False,
    memory: int,
    progress: Progress,
    counter: WorkCounter | None = None,
    fraction: slice | None = None,
) -> Iterator[list[Neighbors]]:
    """Neighbours of consecutive queries, by each relevance filter, in chunks that fit into memory.

    All at once where possible, for only that uses the symmetry of self-retrieval. fraction: of
    these queries alone.
    """
    total, width = len(space.queries), _width(space, depth)
    step = max(1, memory // (LIST_BYTES * (width + 1) * len(filters)))
    wanted = slice(0, total) if fraction is None else fraction
    for start in range(wanted.start, wanted.stop, step):
        rows = slice(start, min(start + step, wanted.stop))
        chunk, of_chunk = space, list(filters)
        if rows != slice(0, total):
            chunk, of_chunk = space.of_queries(rows), [each.of_queries(rows) for each in filters]

        def advance(done: int, blocks: int, rows: slice = rows) -> None:
            before, now = rows.start - wanted.start, rows.stop - rows.start
            progress(before * blocks + now * done, (wanted.stop - wanted.start) * blocks)

        result = [_nothing(each) for each in of_chunk]
        if width:
            values, items = select(
                chunk,
                width,
                exclude=of_chunk[0].exclude,  # the same for all: labels do not matter to it
                memory=memory,
                progress=advance,
                counter=counter,
            )
            result = [_evaluated(chunk, each, values, items, depth) for each in of_chunk]
        if ranks:
            result = [
                replace(neighbors, ranks=positive_ranks(chunk, each))
                for neighbors, each in zip(result, of_chunk, strict=True)
            ]
        if grades:
            result = [
                replace(neighbors, graded=graded_ranks(chunk, each))
                for neighbors, each in zip(result, of_chunk, strict=True)
            ]
        yield result


def _width(space: Space, depth: int) -> int:
    """One neighbour more than wanted, to see whether a list ends in a tie."""
    return min(depth + 1, len(space.gallery)) if depth and len(space.queries) else 0


def _nothing(relevance_filter: RelevanceFilter) -> Neighbors:
    items = relevance_filter.labels.new_zeros(len(relevance_filter.labels), 0)
    return Neighbors(items, items.float(), items.bool(), relevance_filter.num_relevant)


def _evaluated(
    space: Space, relevance_filter: RelevanceFilter, values: Tensor, items: Tensor, depth: int
) -> Neighbors:
    """Lists as selected [Q, depth + 1] become lists as defined [Q, depth]: ties against us."""
    values, items, tied = resolve(
        space,
        values,
        items,
        depth,
        forbidden=relevance_filter.forbidden,
        later=relevance_filter.matches,
    )
    matches = relevance_filter.matches(torch.arange(len(items), device=items.device), items)
    return Neighbors(items, values, matches, relevance_filter.num_relevant, None, tied)
