"""Embeddings and labels to scores: every metric by name, with intervals, in one pass.

    evaluate(embeddings, labels).values["recall@1"].value

    names      files of unseen/metrics, with an optional value: `recall@4` is Recall(4),
               `fnmr_at_fmr@0.01` is FnmrAtFmr(0.01)
    averages   `value` is the mean over queries, `class_average` the mean over classes of theirs
    interval   95 %, bootstrap over the queries, or over whole classes (intervals="classes": the
               real sample, and a longer interval)
    lone       queries without a relevant item have no value; they are counted
    broken     NaN or infinite embeddings score the worst of every metric (0) and are counted, so
               that a diverged run is a bad score, not a crash; `retrieve` refuses them
    clusters   k-means with as many clusters as classes, several starts: mean over starts, and the
               standard deviation over them
    columns    `labels` may be a mapping of names to labels: one pass, scores `name/recall@1`
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from unseen.evaluation.cluster import cluster
from unseen.evaluation.metric_names import Metric, parse_metric
from unseen.evaluation.nearest import Progress
from unseen.evaluation.pairs import pair_scores
from unseen.evaluation.relevance import Relevance
from unseen.evaluation.retrieve import in_parts
from unseen.evaluation.space import Space, make_space, precise
from unseen.metrics.base import Clustering, Retrieval, Verification
from unseen.statistics import RESAMPLES, Interval, bootstrap, class_average

METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "map_at_r", "r_precision", "nmi")
Labels = Tensor | Mapping[str, Tensor]


@dataclass(frozen=True)
class Score:
    """One metric. NaN where something is undefined or was not asked for."""

    value: float
    low: float = math.nan  # 95 % interval
    high: float = math.nan
    class_average: float = math.nan
    std: float = math.nan  # over the starts of k-means

    def to_dict(self) -> dict[str, float | None]:
        named = {"value": self.value, "low": self.low, "high": self.high}
        named["class_average"] = self.class_average
        if not math.isnan(self.std):
            named["std"] = self.std
        return {key: None if math.isnan(v) else round(v, 6) for key, v in named.items()}


@dataclass(frozen=True)
class Evaluation:
    """Scores by metric name, and the values per query (per item for clusterings) behind them."""

    values: dict[str, Score]
    per_query: dict[str, Tensor]  # [Q] float64, NaN for lone queries
    counts: dict[str, int]
    intervals: str
    resamples: int

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, the same for the same embeddings and seed; without the values per query."""
        return {
            "metrics": {name: score.to_dict() for name, score in self.values.items()},
            "counts": dict(self.counts),
            "interval": {"over": self.intervals, "level": 0.95, "resamples": self.resamples},
        }


def evaluate(
    embeddings: Tensor,
    labels: Labels,
    *,
    gallery_embeddings: Tensor | None = None,
    gallery_labels: Labels | None = None,
    positions: Tensor | None = None,
    ignore_groups: Tensor | None = None,
    gallery_ignore_groups: Tensor | None = None,
    metrics: Sequence[str] = METRICS,
    normalise: bool = True,
    intervals: Literal["queries", "classes"] = "queries",
    resamples: int = RESAMPLES,
    starts: int = 3,
    seed: int = 0,
    memory: int = 2**30,
    progress: Progress | None = None,
) -> Evaluation:
    """Scores of embeddings [Q, D] with labels [Q]; the other arguments as in `retrieve`.

    `starts` and `seed` are those of k-means, `seed` also of the bootstrap. `progress` hears of
    thousandths.
    """
    if intervals not in ("queries", "classes"):
        raise ValueError(f"intervals must be 'queries' or 'classes', got {intervals!r}")
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    wanted = {name: parse_metric(name) for name in metrics}
    broken = _num_broken(embeddings) + _num_broken(gallery_embeddings)
    with precise(embeddings.device):
        space = make_space(
            torch.nan_to_num(embeddings) if broken else embeddings,
            torch.nan_to_num(gallery_embeddings) if broken and gallery_embeddings is not None
            else gallery_embeddings,
            normalise,
        )
        judges = {
            column: Relevance(
                space,
                mine,
                theirs,
                positions=positions,
                groups=ignore_groups,
                gallery_groups=gallery_ignore_groups,
            )
            for column, (mine, theirs) in _columns(labels, gallery_labels).items()
        }
        settings = Settings(normalise, starts, seed, memory)
        found = worst(judges, wanted) if broken else measure(space, judges, wanted, settings, progress)
    return _scores(found, judges, intervals, resamples, seed, broken)
