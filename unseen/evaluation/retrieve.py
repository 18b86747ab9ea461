"""Exact nearest neighbours of every query, with labels, as the retrieval metrics want them.

    self-retrieval   every item asks, all others answer; an item is removed from its own list by
                     position, never by being first (a copy of it may be first)
    query/gallery    `gallery_embeddings` answer; `positions` says where a query stands in the gallery
    ties             similarities equal on the grid of `space.py`: wrong items come first, also where
                     the list ends, so that a collapsed embedding scores 0
    lone queries     no item of the same class in the gallery: num_relevant is 0
    ignore groups    gallery items of the query's group (same camera, same sequence) do not answer and do
                     not count as relevant; a negative group ignores nothing

Neighbours are selected with fast products; the few lists whose order those cannot settle (neighbouring
right and wrong items closer than the tolerance, or a list that ends among near-equals) are settled in
float64. Results do not depend on block size. Memory: nearest.py; never queries x gallery.
"""

import math

import torch
from torch import Tensor

from unseen.contracts import Neighbours
from unseen.evaluation.nearest import Progress, nearest
from unseen.evaluation.ranks import positive_ranks
from unseen.evaluation.relevance import Relevance
from unseen.evaluation.space import Space, make_space

CHUNK = 2**23  # float64 numbers worked on at a time while lists are settled


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
    """The `depth` nearest gallery items of each query; with `ranks`, every relevant item's rank too.

    `positions` [Q] holds a query's own place in the gallery, or -1. `memory` bounds the bytes of the
    running lists. Raises ValueError for NaN or infinite embeddings.
    """
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    if depth < 0:
        raise ValueError(f"depth must be at least 0, got {depth}")
    space = make_space(embeddings, gallery_embeddings, normalise)
    relevance = Relevance(
        space, labels, gallery_labels, positions, ignore_groups, gallery_ignore_groups
    )
    kept = min(depth + 1, len(space.gallery))  # one more, to see whether the list ends in a tie
    if depth > 0 and kept > 0 and len(space.queries) > 0:
        values, items = nearest(space, kept, relevance.exclude, block, memory, progress)
        found = settle(space, relevance, values, items, depth)
    else:
        found = _nothing(relevance)
    if not ranks:
        return found
    every_rank = positive_ranks(space, relevance)
    return Neighbours(
        found.indices, found.similarities, found.matches, found.num_relevant, every_rank, found.tied
    )


def settle(
    space: Space, relevance: Relevance, values: Tensor, items: Tensor, depth: int
) -> Neighbours:
    """Lists as selected [Q, depth + 1] become lists as defined [Q, depth]: ties against us."""
    matches = relevance.matches(torch.arange(len(items), device=items.device), items)
    near = values[:, :-1] - values[:, 1:] <= space.tolerance  # [Q, kept - 1]; false beside -inf
    mixed = near & (matches[:, :-1] != matches[:, 1:])
    open_ended = (
        near[:, depth - 1] if items.shape[1] > depth else torch.zeros_like(mixed[:, :0].any(1))
    )
    items, values, matches = items[:, :depth], values[:, :depth], matches[:, :depth].clone()
    items, values = items.clone(), values.clone()
    tied = torch.zeros(len(items), dtype=torch.bool, device=items.device)

    def write(query: Tensor, new_items: Tensor, exact: Tensor, new_tied: Tensor) -> None:
        items[query], tied[query] = new_items, new_tied
        values[query] = (exact * space.grid).to(values.dtype)
        matches[query] = relevance.matches(query, new_items)

    inner = (mixed[:, : depth - 1].any(1) & ~open_ended).nonzero()[:, 0]
    for query in inner.split(max(1, CHUNK // (items.shape[1] * space.queries.shape[1]))):
        write(query, *_reordered(space, relevance, query, items[query]))
    for query in open_ended.nonzero()[:, 0].split(max(1, CHUNK // len(space.gallery))):
        write(query, *_recomputed(space, relevance, query, depth))
    return Neighbours(items, values, matches, relevance.num_relevant, None, tied)


def _reordered(
    space: Space, relevance: Relevance, query: Tensor, items: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A complete list in its right order: similarity, then wrong before right, then position."""
    items = items.sort(dim=1).values
    exact = space.exact(query, items).masked_fill_(items < 0, -math.inf)  # [R, K]
    right = relevance.matches(query, items)
    order = right.to(torch.int8).argsort(dim=1, stable=True)
    order = order.gather(1, exact.gather(1, order).argsort(dim=1, descending=True, stable=True))
    items, exact, right = (t.gather(1, order) for t in (items, exact, right))
    equal = (exact[:, :-1] == exact[:, 1:]) & (items[:, 1:] >= 0)
    return items, exact, (equal & (right[:, :-1] != right[:, 1:])).any(1)


def _recomputed(
    space: Space, relevance: Relevance, query: Tensor, depth: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A list that ends among equals, chosen anew from the whole gallery."""
    exact = space.exact_rows(query)  # [R, G]
    relevance.forbid(exact, query, 0)
    num_items = exact.shape[1]
    last = exact.topk(min(depth, num_items), dim=1).values[:, -1:]
    right = relevance.labels[query, None] == relevance.gallery_labels
    backwards = torch.arange(num_items - 1, -1, -1, device=exact.device, dtype=exact.dtype)
    # Above the last value: surely in. At it: wrong items first, then by position. Below: out.
    claim = torch.where(right, backwards, backwards + num_items).masked_fill_(exact < last, -1.0)
    claim.masked_fill_(exact > last, 2.0 * num_items)
    items = claim.topk(min(depth, num_items), dim=1).indices
    items = items.masked_fill(exact.gather(1, items) == -math.inf, -1)
    items, chosen, tied = _reordered(space, relevance, query, items)
    at_end = (exact == last) & (last > -math.inf)
    return items, chosen, tied | ((at_end & right).any(1) & (at_end & ~right).any(1))


def _nothing(relevance: Relevance) -> Neighbours:
    items = relevance.labels.new_zeros(len(relevance.labels), 0)
    return Neighbours(items, items.float(), items.bool(), relevance.num_relevant)
