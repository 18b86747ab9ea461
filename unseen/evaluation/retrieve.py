"""Exact nearest neighbours of every query, with labels, as the retrieval metrics want them.

    self-retrieval   every item asks, all others answer; an item is removed from its own list by
                     position, never for being first (a copy of it may be first)
    query/gallery    `gallery_embeddings` answer; `positions` says where in the gallery a query
                     itself stands, if it does
    ties             similarities equal on the grid of neighbours/space.py: wrong items come
                     first, also where the list ends, so that a collapsed embedding scores 0
    lone queries     no item of the same class in the gallery: num_relevant is 0
    ignore groups    gallery items of the query's group (same camera, same sequence) do not answer
                     and do not count as relevant; a negative group ignores nothing

Neighbours are selected with fast products. The few lists whose order those cannot settle (a right
beside a wrong item closer than the tolerance, or a list that ends among near-equals) are settled
in float64, so metrics do not depend on the block size. Memory is that of neighbours/nearest.py;
never queries x gallery.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unseen.contracts import Neighbours, Progress
from unseen.evaluation.ranks import positive_ranks
from unseen.evaluation.relevance import Relevance
from unseen.neighbours.nearest import nearest
from unseen.neighbours.space import Space, make_space, precise
from unseen.neighbours.workers import in_parallel

LIST_BYTES = 40  # a neighbour costs while lists are settled
CHUNK = 2**22  # float64 numbers a thread works on at a time while lists are settled


def retrieve(
    embeddings: Tensor,
    labels: Tensor,
    depth: int,
    *,
    gallery_embeddings: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    positions: Tensor | None = None,
    ignore_groups: Tensor | None = None,
    gallery_ignore_groups: Tensor | None = None,
    normalise: bool = True,
    ranks: bool = False,
    block: int = 1024,
    memory: int = 2**30,
    progress: Progress | None = None,
) -> Neighbours:
    """The `depth` nearest gallery items of each query; `ranks` also ranks every relevant one.

    `positions` [Q] holds a query's own place in the gallery, or -1. `memory` bounds the bytes of
    the running lists. Raises ValueError for NaN or infinite embeddings.
    """
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    if depth < 0:
        raise ValueError(f"depth must be at least 0, got {depth}")
    with precise(embeddings.device):
        space = make_space(embeddings, gallery_embeddings, normalise)
        relevance = Relevance(
            space,
            labels,
            gallery_labels,
            positions=positions,
            groups=ignore_groups,
            gallery_groups=gallery_ignore_groups,
        )
        found = _nothing(relevance)
        if kept := _kept(space, depth):
            exclude = relevance.exclude
            values, items = nearest(
                space, kept, exclude=exclude, block=block, memory=memory, progress=progress
            )
            found = settle(space, relevance, values, items, depth)
        return replace(found, ranks=positive_ranks(space, relevance)) if ranks else found


def in_parts(
    space: Space,
    relevances: Sequence[Relevance],
    depth: int,
    *,
    ranks: bool,
    memory: int,
    progress: Progress,
) -> Iterator[list[Neighbours]]:
    """Neighbours of consecutive queries, for each kind of label, in parts that fit into memory.

    All at once where possible, for only that uses the symmetry of self-retrieval.
    """
    total, kept = len(space.queries), _kept(space, depth)
    step = max(1, memory // (LIST_BYTES * (kept + 1) * len(relevances)))
    for start in range(0, total, step):
        rows = slice(start, min(start + step, total))
        part, judges = space, list(relevances)
        if step < total:
            part, judges = space.part(rows), [relevance.part(rows) for relevance in relevances]

        def advance(done: int, blocks: int, rows: slice = rows) -> None:
            progress(rows.start * blocks + (rows.stop - rows.start) * done, total * blocks)

        found = [_nothing(judge) for judge in judges]
        if kept:
            exclude = judges[0].exclude  # the same for all: labels have no part in it
            values, items = nearest(part, kept, exclude=exclude, memory=memory, progress=advance)
            found = [settle(part, judge, values, items, depth) for judge in judges]
        if ranks:
            every = [positive_ranks(part, judge) for judge in judges]
            found = [replace(f, ranks=r) for f, r in zip(found, every, strict=True)]
        yield found


def _kept(space: Space, depth: int) -> int:
    """One neighbour more than wanted, to see whether a list ends in a tie."""
    return min(depth + 1, len(space.gallery)) if depth and len(space.queries) else 0


def _nothing(relevance: Relevance) -> Neighbours:
    items = relevance.labels.new_zeros(len(relevance.labels), 0)
    return Neighbours(items, items.float(), items.bool(), relevance.num_relevant)


def settle(
    space: Space, relevance: Relevance, values: Tensor, items: Tensor, depth: int
) -> Neighbours:
    """Lists as selected [Q, depth + 1] become lists as defined [Q, depth]: ties against us."""
    matches = relevance.matches(torch.arange(len(items), device=items.device), items)
    near = values[:, :-1] - values[:, 1:] <= space.tolerance  # [Q, kept - 1]; false beside -inf
    open_ended = torch.zeros(len(items), dtype=torch.bool, device=items.device)
    if items.shape[1] > depth:
        open_ended |= near[:, depth - 1]
    items, values, matches = (t[:, :depth].clone() for t in (items, values, matches))
    near = near[:, : depth - 1]
    mixed = (near & (matches[:, :-1] != matches[:, 1:])).any(1)
    tied = torch.zeros_like(open_ended)

    def work(task: tuple[bool, Tensor]) -> None:
        is_open, query = task
        if is_open:
            found = _recomputed(space, relevance, query, values[query])
        else:
            exact = _exact_where_near(space, query, items[query], values[query], near[query])
            places = items[query].sort(dim=1)
            exact = exact.gather(1, places.indices)
            found = _in_order(places.values, exact, relevance.matches(query, places.values))
        items[query], exact, tied[query] = found
        values[query] = (exact * space.grid).to(values.dtype)
        matches[query] = relevance.matches(query, items[query])

    inner = (mixed & ~open_ended).nonzero()[:, 0]
    tasks = [(False, query) for query in inner.split(max(1, CHUNK // (64 * depth)))]
    in_gallery = max(1, CHUNK // len(space.gallery))
    tasks += [(True, query) for query in open_ended.nonzero()[:, 0].split(in_gallery)]
    in_parallel([task for task in tasks if len(task[1])], work, items.device)
    return Neighbours(items, values, matches, relevance.num_relevant, None, tied)


def _exact_where_near(
    space: Space, query: Tensor, items: Tensor, values: Tensor, near: Tensor
) -> Tensor:  # [R, K] float64 in grid units
    """Similarities, exact where the next in the list is so near that the order is in doubt."""
    doubtful = torch.nn.functional.pad(near, (0, 1)) | torch.nn.functional.pad(near, (1, 0))
    row, place = doubtful.nonzero(as_tuple=True)
    exact = values.double() / space.grid
    exact[row, place] = _exact_pairs(space, query[row], items[row, place])
    return exact


def _in_order(
    items: Tensor, exact: Tensor, right: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # items, values [R, K]; tied [R]
    """Lists given by rising position, sorted by similarity, then wrong before right."""
    order = right.to(torch.int8).argsort(dim=1, stable=True)
    order = order.gather(1, exact.gather(1, order).argsort(dim=1, descending=True, stable=True))
    items, exact, right = (t.gather(1, order) for t in (items, exact, right))
    equal = (exact[:, :-1] == exact[:, 1:]) & (items[:, 1:] >= 0)
    return items, exact, (equal & (right[:, :-1] != right[:, 1:])).any(1)


def _recomputed(
    space: Space, relevance: Relevance, query: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Lists that end among equals, values [R, K] as selected, chosen anew from the gallery."""
    depth = values.shape[1]
    exact = _exact_above(space, query, values[:, -1:] - 2 * space.tolerance)  # [R, G]
    relevance.forbid(exact, query, 0)
    num_items = exact.shape[1]
    last = exact.topk(depth, dim=1).values[:, -1:]
    right = relevance.labels[query, None] == relevance.gallery_labels
    backwards = torch.arange(num_items - 1, -1, -1, device=exact.device, dtype=exact.dtype)
    # Above the last value: surely in. At it: wrong items first, then by position. Below: out.
    claim = torch.where(right, backwards, backwards + num_items).masked_fill_(exact < last, -1.0)
    claim.masked_fill_(exact > last, 2.0 * num_items)
    chosen = claim.topk(depth, dim=1).indices.sort(dim=1).values
    values = exact.gather(1, chosen)
    items = chosen.masked_fill(values == -math.inf, -1)
    items, values, tied = _in_order(items, values, right.gather(1, chosen) & (items >= 0))
    at_end = (exact == last) & (last > -math.inf)
    return items, values, tied | ((at_end & right).any(1) & (at_end & ~right).any(1))


def _exact_above(space: Space, query: Tensor, bar: Tensor) -> Tensor:  # [R, G] float64
    """Similarities in grid units; those above the bar [R, 1] are exact, the others below it."""
    fast = space.left[query] @ space.right.T
    row, item = (fast > bar).nonzero(as_tuple=True)
    if len(row) * 8 > fast.numel():  # so many that one product is cheaper
        return space.exact_rows(query)
    exact = fast.double() / space.grid
    exact[row, item] = _exact_pairs(space, query[row], item)
    return exact


def _exact_pairs(space: Space, query: Tensor, items: Tensor) -> Tensor:  # [P] float64
    step = max(1, CHUNK // space.queries.shape[1])
    parts = [
        space.exact(q, i[:, None])[:, 0]
        for q, i in zip(query.split(step), items.split(step), strict=True)
    ]
    return torch.cat(parts)
