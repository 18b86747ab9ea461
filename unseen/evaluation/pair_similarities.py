"""Similarities of all right and all wrong pairs, counted: what verification metrics read.

Self-retrieval counts each pair of two items once, query/gallery every query with every item; pairs
that may not meet (a query and itself, its ignore group) are left out. Similarities are float64,
rounded to 2^-20 for cosines and to 2^-19 of the scale of raw embeddings, so that they are counted
in bins instead of kept: exact on that grid, and memory does not grow with the pairs.
"""

import math

import torch
from torch import Tensor

from unseen.core.contracts import Progress
from unseen.evaluation.relevance_filters import RelevanceFilter
from unseen.metrics.base import PairScores
from unseen.neighbors.space import Space

ROWS, COLUMNS = 1024, 4096
HALF = 2**20 + 2  # cosines in grid units, with room for rounding
RAW_UNITS, RAW_BINS = 2**9, 2**21 + 2  # grid units in a bin, bins: squared distances up to 4 scales


def pair_scores(
    space: Space, relevance_filter: RelevanceFilter, progress: Progress | None = None
) -> PairScores:
    """Counts of right and wrong pairs at each similarity that occurs."""
    unit, lowest, num_bins = (1, -HALF, 2 * HALF)
    if space.center is not None:
        unit, lowest, num_bins = RAW_UNITS, 1 - RAW_BINS, RAW_BINS
    counts = torch.zeros(2, num_bins, dtype=torch.int64, device=space.left.device)
    panels = range(0, len(space.queries), ROWS)
    for done, first in enumerate(panels, start=1):
        query = torch.arange(first, min(first + ROWS, len(space.queries)), device=counts.device)
        for column in range(first if space.symmetric else 0, len(space.gallery), COLUMNS):
            for row, values in enumerate(_wrong_and_right(space, relevance_filter, query, column)):
                bins = (values / unit).round_().long() - lowest
                counts[row] += torch.bincount(bins, minlength=num_bins)
        if progress is not None:
            progress(done, len(panels))
    seen = counts.sum(0).nonzero()[:, 0].flip(0)
    return PairScores((seen + lowest) * (unit * space.grid), counts[1, seen], counts[0, seen])


def _wrong_and_right(
    space: Space, relevance_filter: RelevanceFilter, query: Tensor, first_column: int
) -> tuple[Tensor, Tensor]:
    """Similarities, in grid units, of a block's wrong and right pairs."""
    columns = slice(first_column, first_column + COLUMNS)
    sim = space.exact_rows(query, columns)  # [R, C]
    relevance_filter.forbid(sim, query, first_column)
    allowed = sim > -math.inf
    if space.symmetric:  # each pair once: the item stands after the query
        place = torch.arange(first_column, first_column + sim.shape[1], device=sim.device)
        allowed &= place > query[:, None]
    right = relevance_filter.right(query, columns)
    return sim[allowed & ~right], sim[allowed & right]
