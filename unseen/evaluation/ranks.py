"""Ranks of every relevant item by counting: what full average precision and reciprocal rank need.

The k-th best relevant item of a query has rank k + the number of wrong items at least as similar
(ties count against us). So only relevant items are sorted: each wrong item is dropped into the gap
between relevant ones where it belongs, and the gaps are summed up. In float64, in blocks.
"""

import math

import torch
from torch import Tensor

from unseen.contracts import Progress
from unseen.evaluation.relevance import Relevance
from unseen.neighbours.space import Space

ROWS, COLUMNS = 1024, 4096


def positive_ranks(
    space: Space, relevance: Relevance, progress: Progress | None = None
) -> Tensor:  # [Q, R] int64
    """Ranks from 1 of each query's relevant items, rising; 0 where there are no more."""
    most = int(relevance.num_relevant.max()) if len(relevance.num_relevant) else 0
    ranks = relevance.labels.new_zeros(len(relevance.labels), most)
    panels = torch.arange(len(ranks), device=ranks.device).split(ROWS)
    for done, query in enumerate(panels, start=1):
        relevant = _relevant_values(space, relevance, query)[:, :most]  # [B, R] falling
        wrong = _wrong_at_least(space, relevance, query, relevant)
        rank = wrong + torch.arange(1, relevant.shape[1] + 1, device=ranks.device)
        ranks[query, : rank.shape[1]] = rank.masked_fill_(relevant == -math.inf, 0)
        if progress is not None:
            progress(done, len(panels))
    return ranks


def _relevant_values(space: Space, relevance: Relevance, query: Tensor) -> Tensor:
    """Similarities of each query's relevant items, largest first, then -inf."""
    items = relevance.relevant_items(query)
    rows = max(1, 2**23 // max(1, items.shape[1] * space.queries.shape[1]))
    parts = [space.exact(q, i) for q, i in zip(query.split(rows), items.split(rows), strict=True)]
    values = torch.cat(parts).masked_fill_(items < 0, -math.inf)
    return values.sort(dim=1, descending=True).values


def _wrong_at_least(
    space: Space, relevance: Relevance, query: Tensor, relevant: Tensor
) -> Tensor:  # [B, R] int64
    """How many wrong items are at least as similar as each relevant one."""
    rising = relevant.flip(1).contiguous()
    width = rising.shape[1] + 1
    count = torch.zeros(len(query) * width, dtype=torch.int64, device=query.device)
    offset = torch.arange(len(query), device=query.device)[:, None] * width
    for first in range(0, len(space.gallery), COLUMNS):
        sim = space.exact_rows(query, slice(first, first + COLUMNS))
        relevance.forbid(sim, query, first)
        labels = relevance.gallery_labels[first : first + COLUMNS]
        sim.masked_fill_(relevance.labels[query, None] == labels, -math.inf)
        above = torch.searchsorted(rising, sim, right=True)  # relevant items it is as good as
        count += torch.bincount((above + offset).flatten(), minlength=len(count))
    per_gap = count.view(-1, width)[:, 1:]
    return per_gap.flip(1).cumsum(1)
