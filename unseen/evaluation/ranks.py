"""Ranks of every relevant item: what full average precision, reciprocal rank and grades need.

The k-th best relevant item of a query has rank k + the number of wrong items at least as similar
(ties count against us). So only relevant items are sorted: each wrong item is dropped into the gap
between relevant ones where it belongs, and the gaps are summed up. In float64, in blocks.

Where grades count, whole rankings are sorted; among equals the lower grades come first.
"""

import math

import torch
from torch import Tensor

from unseen.core.contracts import GradedRanks, Progress
from unseen.evaluation.relevance_filters import ENTRIES, RelevanceFilter
from unseen.neighbors.space import Space

ROWS, COLUMNS = 1024, 4096


def positive_ranks(
    space: Space, relevance_filter: RelevanceFilter, progress: Progress | None = None
) -> Tensor:  # [Q, R] int64
    """Ranks from 1 of each query's relevant items, rising; 0 where there are no more."""
    most = int(relevance_filter.num_relevant.max()) if len(relevance_filter.num_relevant) else 0
    ranks = relevance_filter.labels.new_zeros(len(relevance_filter.labels), most)
    panels = torch.arange(len(ranks), device=ranks.device).split(ROWS)
    for done, query in enumerate(panels, start=1):
        relevant = _relevant_values(space, relevance_filter, query)[:, :most]  # [B, R] falling
        wrong = _wrong_at_least(space, relevance_filter, query, relevant)
        rank = wrong + torch.arange(1, relevant.shape[1] + 1, device=ranks.device)
        ranks[query, : rank.shape[1]] = rank.masked_fill_(relevant == -math.inf, 0)
        if progress is not None:
            progress(done, len(panels))
    return ranks


def _relevant_values(space: Space, relevance_filter: RelevanceFilter, query: Tensor) -> Tensor:
    """Similarities of each query's relevant items, largest first, then -inf."""
    items = relevance_filter.relevant_items(query)
    rows = max(1, 2**23 // max(1, items.shape[1] * space.queries.shape[1]))
    parts = [space.exact(q, i) for q, i in zip(query.split(rows), items.split(rows), strict=True)]
    values = torch.cat(parts).masked_fill_(items < 0, -math.inf)
    return values.sort(dim=1, descending=True).values


def _wrong_at_least(
    space: Space, relevance_filter: RelevanceFilter, query: Tensor, relevant: Tensor
) -> Tensor:  # [B, R] int64
    """How many wrong items are at least as similar as each relevant one."""
    rising = relevant.flip(1).contiguous()
    width = rising.shape[1] + 1
    count = torch.zeros(len(query) * width, dtype=torch.int64, device=query.device)
    offset = torch.arange(len(query), device=query.device)[:, None] * width
    for first in range(0, len(space.gallery), COLUMNS):
        sim = space.exact_rows(query, slice(first, first + COLUMNS))
        relevance_filter.forbid(sim, query, first)
        sim.masked_fill_(relevance_filter.right(query, slice(first, first + COLUMNS)), -math.inf)
        above = torch.searchsorted(rising, sim, right=True)  # relevant items it is as good as
        count += torch.bincount((above + offset).flatten(), minlength=len(count))
    per_gap = count.view(-1, width)[:, 1:]
    return per_gap.flip(1).cumsum(1)


def graded_ranks(space: Space, relevance_filter: RelevanceFilter) -> GradedRanks:
    """Of each query's items with a grade above 0."""
    query = torch.arange(len(relevance_filter.labels), device=relevance_filter.labels.device)
    rows = max(1, ENTRIES // max(1, len(space.gallery)))
    parts = [_of_block(space, relevance_filter, q) for q in query.split(rows)]
    most = max((block.ranks.shape[1] for block in parts), default=0)
    wide = [block.padded(most) for block in parts]
    return GradedRanks(
        torch.cat([block.ranks for block in wide]), torch.cat([block.grades for block in wide])
    )


def _of_block(space: Space, relevance_filter: RelevanceFilter, query: Tensor) -> GradedRanks:
    sim = space.exact_rows(query, slice(None))  # [R, G]
    relevance_filter.forbid(sim, query, 0)
    grades = relevance_filter.grades(query).double().masked_fill_(sim == -math.inf, 0)
    order = grades.argsort(dim=1, stable=True)
    order = order.gather(1, sim.gather(1, order).argsort(dim=1, descending=True, stable=True))
    grades = grades.gather(1, order)
    related = grades > 0
    most = int(related.sum(dim=1).max()) if len(related) else 0
    first = related.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    listed = related.gather(1, first)
    return GradedRanks((first + 1) * listed, grades.gather(1, first) * listed)
