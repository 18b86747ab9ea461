"""Ranks of every relevant item: what full average precision, reciprocal rank and grades need.

The k-th best relevant item of a query has rank k + the number of wrong items at least as similar
(ties count against us). So only relevant items are sorted: each wrong item is dropped into the gap
between relevant ones where it belongs, and the gaps are summed up. In float64, in blocks.

Where grades count, whole rankings are sorted; among equals the lower grades come first.
"""

import math

import torch
from torch import Tensor

from unseen.contracts import GradedRanks, Progress
from unseen.evaluation.judges import ENTRIES, Judge
from unseen.neighbours.space import Space

ROWS, COLUMNS = 1024, 4096


def positive_ranks(
    space: Space, judge: Judge, progress: Progress | None = None
) -> Tensor:  # [Q, R] int64
    """Ranks from 1 of each query's relevant items, rising; 0 where there are no more."""
    most = int(judge.num_relevant.max()) if len(judge.num_relevant) else 0
    ranks = judge.labels.new_zeros(len(judge.labels), most)
    panels = torch.arange(len(ranks), device=ranks.device).split(ROWS)
    for done, query in enumerate(panels, start=1):
        relevant = _relevant_values(space, judge, query)[:, :most]  # [B, R] falling
        wrong = _wrong_at_least(space, judge, query, relevant)
        rank = wrong + torch.arange(1, relevant.shape[1] + 1, device=ranks.device)
        ranks[query, : rank.shape[1]] = rank.masked_fill_(relevant == -math.inf, 0)
        if progress is not None:
            progress(done, len(panels))
    return ranks


def _relevant_values(space: Space, judge: Judge, query: Tensor) -> Tensor:
    """Similarities of each query's relevant items, largest first, then -inf."""
    items = judge.relevant_items(query)
    rows = max(1, 2**23 // max(1, items.shape[1] * space.queries.shape[1]))
    parts = [space.exact(q, i) for q, i in zip(query.split(rows), items.split(rows), strict=True)]
    values = torch.cat(parts).masked_fill_(items < 0, -math.inf)
    return values.sort(dim=1, descending=True).values


def _wrong_at_least(
    space: Space, judge: Judge, query: Tensor, relevant: Tensor
) -> Tensor:  # [B, R] int64
    """How many wrong items are at least as similar as each relevant one."""
    rising = relevant.flip(1).contiguous()
    width = rising.shape[1] + 1
    count = torch.zeros(len(query) * width, dtype=torch.int64, device=query.device)
    offset = torch.arange(len(query), device=query.device)[:, None] * width
    for first in range(0, len(space.gallery), COLUMNS):
        sim = space.exact_rows(query, slice(first, first + COLUMNS))
        judge.forbid(sim, query, first)
        sim.masked_fill_(judge.right(query, slice(first, first + COLUMNS)), -math.inf)
        above = torch.searchsorted(rising, sim, right=True)  # relevant items it is as good as
        count += torch.bincount((above + offset).flatten(), minlength=len(count))
    per_gap = count.view(-1, width)[:, 1:]
    return per_gap.flip(1).cumsum(1)


def graded_ranks(space: Space, judge: Judge) -> GradedRanks:
    """Of each query's items with a grade above 0."""
    query = torch.arange(len(judge.labels), device=judge.labels.device)
    rows = max(1, ENTRIES // max(1, len(space.gallery)))
    parts = [_of_block(space, judge, q) for q in query.split(rows)]
    most = max((part.ranks.shape[1] for part in parts), default=0)
    wide = [part.padded(most) for part in parts]
    return GradedRanks(
        torch.cat([part.ranks for part in wide]), torch.cat([part.grades for part in wide])
    )


def _of_block(space: Space, judge: Judge, query: Tensor) -> GradedRanks:
    sim = space.exact_rows(query, slice(None))  # [R, G]
    judge.forbid(sim, query, 0)
    grades = judge.grades(query).double().masked_fill_(sim == -math.inf, 0)
    order = grades.argsort(dim=1, stable=True)
    order = order.gather(1, sim.gather(1, order).argsort(dim=1, descending=True, stable=True))
    grades = grades.gather(1, order)
    related = grades > 0
    most = int(related.sum(dim=1).max()) if len(related) else 0
    first = related.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    listed = related.gather(1, first)
    return GradedRanks((first + 1) * listed, grades.gather(1, first) * listed)
