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

Neighbours are selected with fast products. The few lists whose order those cannot settle (items
closer together than the tolerance, or a list that ends among near-equals) are settled in float64,
so neighbours depend neither on the size of blocks nor on the precision of the first pass. Memory is
that of neighbours/select.py; never queries x gallery.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unseen.contracts import Neighbours, Progress
from unseen.evaluation.judges import Judge, judge_of
from unseen.evaluation.ranks import graded_ranks, positive_ranks
from unseen.neighbours.product import Tally
from unseen.neighbours.select import Precision, select
from unseen.neighbours.settle import settle
from unseen.neighbours.space import Space, make_space, precise
from unseen.relevance import AnyLabels

LIST_BYTES = 40  # a neighbour costs while lists are settled


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
    normalise: bool = True,
    ranks: bool = False,
    grades: bool = False,
    block: int = 1024,
    memory: int = 2**30,
    progress: Progress | None = None,
    precision: Precision = "auto",
) -> Neighbours:
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
        space = make_space(embeddings, gallery_embeddings, normalise)
        judge = judge_of(
            space,
            labels,
            gallery_labels,
            positions=positions,
            groups=ignore_groups,
            gallery_groups=gallery_ignore_groups,
        )
        found = _nothing(judge)
        if kept := _kept(space, depth):
            values, items = select(
                space,
                kept,
                exclude=judge.exclude,
                block=block,
                memory=memory,
                progress=progress,
                precision=precision,
            )
            found = _judged(space, judge, values, items, depth)
        if ranks:
            found = replace(found, ranks=positive_ranks(space, judge))
        return replace(found, graded=graded_ranks(space, judge)) if grades else found


def in_parts(
    space: Space,
    every_judge: Sequence[Judge],
    depth: int,
    *,
    ranks: bool,
    grades: bool = False,
    memory: int,
    progress: Progress,
    tally: Tally | None = None,
    share: slice | None = None,
) -> Iterator[list[Neighbours]]:
    """Neighbours of consecutive queries, for each kind of label, in parts that fit into memory.

    All at once where possible, for only that uses the symmetry of self-retrieval. share: of these
    queries alone.
    """
    total, kept = len(space.queries), _kept(space, depth)
    step = max(1, memory // (LIST_BYTES * (kept + 1) * len(every_judge)))
    wanted = slice(0, total) if share is None else share
    for start in range(wanted.start, wanted.stop, step):
        rows = slice(start, min(start + step, wanted.stop))
        part, judges = space, list(every_judge)
        if rows != slice(0, total):
            part, judges = space.part(rows), [judge.part(rows) for judge in every_judge]

        def advance(done: int, blocks: int, rows: slice = rows) -> None:
            before, now = rows.start - wanted.start, rows.stop - rows.start
            progress(before * blocks + now * done, (wanted.stop - wanted.start) * blocks)

        found = [_nothing(judge) for judge in judges]
        if kept:
            exclude = judges[0].exclude  # the same for all: labels have no part in it
            values, items = select(
                part, kept, exclude=exclude, memory=memory, progress=advance, tally=tally
            )
            found = [_judged(part, judge, values, items, depth) for judge in judges]
        if ranks:
            every = [positive_ranks(part, judge) for judge in judges]
            found = [replace(f, ranks=r) for f, r in zip(found, every, strict=True)]
        if grades:
            graded = [graded_ranks(part, judge) for judge in judges]
            found = [replace(f, graded=g) for f, g in zip(found, graded, strict=True)]
        yield found


def _kept(space: Space, depth: int) -> int:
    """One neighbour more than wanted, to see whether a list ends in a tie."""
    return min(depth + 1, len(space.gallery)) if depth and len(space.queries) else 0


def _nothing(judge: Judge) -> Neighbours:
    items = judge.labels.new_zeros(len(judge.labels), 0)
    return Neighbours(items, items.float(), items.bool(), judge.num_relevant)


def _judged(space: Space, judge: Judge, values: Tensor, items: Tensor, depth: int) -> Neighbours:
    """Lists as selected [Q, depth + 1] become lists as defined [Q, depth]: ties against us."""
    values, items, tied = settle(
        space, values, items, depth, forbidden=judge.forbidden, later=judge.matches
    )
    matches = judge.matches(torch.arange(len(items), device=items.device), items)
    return Neighbours(items, values, matches, judge.num_relevant, None, tied)
