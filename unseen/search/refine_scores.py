"""Retrieval metrics of lists that were put in another order."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from unseen.evaluation.metric_names import parse_metric
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.base import Retrieval
from unseen.search.refine import reranked

SPARE = 100  # candidates beyond what a metric looks at


def reranked_scores(
    vectors: Tensor, labels: Tensor, metrics: Sequence[str], k1: int, k2: int
) -> dict[str, float]:
    """Means of metrics after k-reciprocal re-ranking of unit vectors [n, D] with labels [n]."""
    made = {name: parse_metric(name) for name in metrics}
    most = int(labels.bincount().max())
    depths = [m.depth(most) for m in made.values() if isinstance(m, Retrieval)]
    result = retrieve(vectors, labels, min(len(labels) - 1, max(depths) + SPARE))
    order = reranked(vectors, result.indices, k1, k2)
    lists = replace(result, indices=order, matches=labels[order] == labels[:, None], tied=None)
    return {
        name: float(metric(lists).nanmean())
        for name, metric in made.items()
        if isinstance(metric, Retrieval)
    }
