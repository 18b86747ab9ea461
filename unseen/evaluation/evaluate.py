"""Embeddings and labels to scores: every metric by name, with intervals, in one pass.

evaluate(embeddings, labels).values["recall@1"].value

names      files of unseen/metrics, with an optional value: `recall@4` is Recall(4),
           `fnmr_at_fmr@0.01` is FnmrAtFmr(0.01)
averages   `value` is the mean over queries, `class_average` the mean over classes of theirs
interval   95 %, bootstrap over the queries, or over whole classes (intervals="classes": the
           real sample, and a longer interval)
lone       queries without a relevant item have no value; they are counted
missing    a query whose class the gallery does not have at all is an error: the files do not belong
           together; `missing="count"` counts it as a lone query
broken     rows with NaN or infinity are an error that names them; `non_finite="worst"` scores the
           worst of every metric (0; error rates 1) and counts them: a diverged run is a bad
           score, not a crash
clusters   k-means with as many clusters as classes, several starts: mean over starts, and the
           standard deviation over them; NaN where each item, or none, is a class of its own
columns    `labels` may be a mapping of names to labels: one pass, scores `name/recall@1`
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from unseen.core import custom_components
from unseen.core.contracts import CpuProcesses, Progress
from unseen.core.relevance import AnyLabels, classes_of
from unseen.core.statistics import RESAMPLES, bootstrap, class_average
from unseen.evaluation.compute_metrics import (
    Effort,
    Measured,
    RelevanceFilters,
    item_labels,
    measure,
    worst,
)
from unseen.evaluation.metric_names import USUAL as METRICS
from unseen.evaluation.metric_names import Metric, metric_name, parse_metric
from unseen.evaluation.relevance_filters import ClassFilter, filter_of
from unseen.evaluation.retrieval_task import Labels
from unseen.evaluation.user_embeddings import UserLabels, UserValues, as_labels, as_matrix
from unseen.metrics.base import Clustering
from unseen.neighbors.space import make_space, non_finite_rows, precise


@dataclass(frozen=True)
class Score:
    """One metric. NaN where something is undefined or was not asked for."""

    value: float
    low: float = math.nan  # 95 % interval
    high: float = math.nan
    class_average: float = math.nan
    std: float = math.nan  # over the starts of k-means

    def __eq__(self, other: object) -> bool:
        """NaN equals NaN here; from Python 3.13 on a dataclass compares numbers alone."""
        return isinstance(other, Score) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def has_interval(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))

    def __str__(self) -> str:
        """In percent: `84.1 (82.9 to 85.2)`."""
        ends = "" if not self.has_interval else f" ({100 * self.low:.1f} to {100 * self.high:.1f})"
        return f"{100 * self.value:5.1f}{ends}"

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
    compared_twice: float = 0.0  # share of pairs, first in integers, then in floats

    def by(self, column: str) -> "Evaluation":
        """The scores by one label column, under plain names; "" is the column without a name."""
        counts = _of_column(self.counts, column)
        everyone = {key: self.counts[key] for key in ("gallery", "broken")}
        return Evaluation(
            values=_of_column(self.values, column),
            per_query=_of_column(self.per_query, column),
            counts=dict(sorted((counts | everyone).items())),
            intervals=self.intervals,
            resamples=self.resamples,
            compared_twice=self.compared_twice,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, the same for the same embeddings and seed; without the values per query."""
        return {
            "metrics": {name: score.to_dict() for name, score in self.values.items()},
            "counts": dict(self.counts),
            "interval": {"over": self.intervals, "level": 0.95, "resamples": self.resamples},
        }

    def __str__(self) -> str:
        """A line for each metric, in percent with its interval."""
        width = max(map(len, self.values), default=0)
        lines = [f"{name:{width}}  {score}" for name, score in self.values.items()]
        return "\n".join([*lines, *why_undefined(self.counts)])

    def _repr_html_(self) -> str:
        from unseen.core.html_templates import render  # noqa: PLC0415 - for notebooks alone

        return render("evaluation/scores", values=self.values, counts=self.counts)


def evaluate(
    embeddings: UserValues,
    labels: UserLabels,
    *,
    gallery_embeddings: UserValues | None = None,
    gallery_labels: UserLabels | None = None,
    positions: Tensor | None = None,
    ignore_groups: Tensor | None = None,
    gallery_ignore_groups: Tensor | None = None,
    metrics: Sequence[str | Metric] = METRICS,
    normalize: bool = True,
    missing: Literal["error", "count"] = "error",
    non_finite: Literal["error", "worst"] = "error",
    intervals: Literal["queries", "classes"] = "queries",
    resamples: int = RESAMPLES,
    starts: int = 3,
    seed: int = 0,
    memory: int = 2**30,
    progress: Progress | None = None,
    processes: CpuProcesses | None = None,
) -> Evaluation:
    """Scores of embeddings with labels: each item is a query among the others, or among a gallery.

    Args:
        embeddings: [Q, D] a tensor, array or list.
        labels: [Q] integers or words.
        gallery_embeddings: [G, D] what is searched, where it is not the queries themselves.
        gallery_labels: [G] its labels.
        positions: [Q] where each query stands in the gallery, to leave it out of its own answer.
        ignore_groups: [Q] groups (of a camera, a photograph): images of the query's are left out.
        gallery_ignore_groups: [G] the same of the gallery.
        metrics: Names of the catalogue, or objects of `unseen.metrics.base`.
        normalize: Compare by the cosine; False: by the Euclidean distance.
        missing: Queries without a match in the gallery are an `error`, or left out and counted.
        non_finite: Rows with NaN or infinity are an `error`, or every metric scores its `worst`.
        intervals: 95 % intervals by a bootstrap over `queries` or `classes`.
        resamples: Of the bootstrap.
        starts: Of k-means; the best one counts.
        seed: Of k-means and the bootstrap.
        memory: Bytes for a block of similarities.
        progress: Called with thousandths that are done.
        processes: Search the neighbours together; all get the same numbers.

    Example:
        >>> import torch
        >>> from unseen import evaluate
        >>> scores = evaluate(torch.eye(4).repeat_interleave(2, dim=0), [0, 0, 1, 1, 2, 2, 3, 3])
        >>> scores.values["recall@1"].value
        1.0
    """
    if intervals not in ("queries", "classes"):
        raise ValueError(f"intervals must be 'queries' or 'classes', got {intervals!r}")
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    if missing not in ("error", "count"):
        raise ValueError(f"missing must be 'error' or 'count', got {missing!r}")
    if non_finite not in ("error", "worst"):
        raise ValueError(f"non_finite must be 'error' or 'worst', got {non_finite!r}")
    items = as_matrix(embeddings)
    if len(items) == 0:
        raise ValueError("embeddings must hold at least one item")
    gallery = (
        None if gallery_embeddings is None else as_matrix(gallery_embeddings, "gallery_embeddings")
    )
    names, gallery_names = as_labels(labels, gallery_labels)
    custom_components.trust(list(metrics))  # those of a config were asked about when it was read
    wanted = {metric_name(m): parse_metric(m) if isinstance(m, str) else m for m in metrics}
    broken = 0
    if non_finite == "worst":
        broken = _num_non_finite(items) + _num_non_finite(gallery)
    if broken:  # labels are still checked and counted
        items = torch.zeros_like(items)
        if gallery is not None:
            gallery = torch.zeros_like(gallery)
    with precise(items.device):
        space = make_space(items, gallery, normalize)
        relevance_filters = {
            name: filter_of(
                space,
                *columns,
                positions=positions,
                groups=ignore_groups,
                gallery_groups=gallery_ignore_groups,
            )
            for name, columns in _columns(names, gallery_names).items()
        }
        if missing == "error":
            _refuse_missing_classes(relevance_filters)
        _refuse_clusters_without_classes(names, wanted)
        if broken:
            measured = worst(relevance_filters, wanted)
        else:
            measured = measure(
                space, relevance_filters, wanted, Effort(starts, seed, memory, processes), progress
            )
    counts = _counts(relevance_filters, measured) | {
        "gallery": len(space.gallery),
        "broken": broken,
    }
    return Evaluation(
        values=_scores(
            relevance_filters, measured, list(wanted), intervals == "classes", (resamples, seed)
        ),
        per_query={
            _full_name(*key): value.cpu()
            for key, value in (measured.per_query | measured.per_item).items()
        },
        counts=dict(sorted(counts.items())),
        intervals=intervals,
        resamples=resamples,
        compared_twice=measured.counter.fraction,
    )


def why_undefined(counts: Mapping[str, int]) -> list[str]:
    """A line for each label column by which some metrics have no value."""
    lines = []
    for name in (name for name in counts if name.rpartition("/")[2] == "queries"):
        column = name.removesuffix("queries")
        reason = "all items are of one class" * (counts[f"{column}classes"] == 1)
        if counts[name] == 0:
            reason = "no item has another of its class"
        lines += [f"nan: undefined, {reason}" + f" ({column[:-1]})" * bool(column)] * bool(reason)
    return lines


def _refuse_missing_classes(relevance_filters: RelevanceFilters) -> None:
    by_class = {
        c: relevance_filter
        for c, relevance_filter in relevance_filters.items()
        if isinstance(relevance_filter, ClassFilter)
    }
    for column, relevance_filter in by_class.items():
        missing = ~torch.isin(relevance_filter.labels, relevance_filter.gallery_labels)
        if missing.any():
            labels = relevance_filter.labels[missing].unique()
            raise ValueError(
                f"{int(missing.sum())} queries ask for {len(labels)} classes that the gallery does "
                f"not have{f' ({column})' if column else ''}, such as {int(labels[0])}: "
                "missing='count' leaves them out and counts them"
            )


def _refuse_clusters_without_classes(labels: Labels, wanted: Mapping[str, Metric]) -> None:
    clusterings = [name for name, metric in wanted.items() if isinstance(metric, Clustering)]
    for column in labels.values() if isinstance(labels, Mapping) else [labels]:
        if clusterings:
            classes_of(column, f"{', '.join(clusterings)} can be left out: clusterings go")


def _counts(relevance_filters: RelevanceFilters, measured: Measured) -> dict[str, int]:
    """What was asked, left out and decided against us."""
    counts = {}
    for column, relevance_filter in relevance_filters.items():
        lone = int((relevance_filter.num_relevant == 0).sum())
        counts[_full_name(column, "queries")] = len(relevance_filter.labels) - lone
        counts[_full_name(column, "lone_queries")] = lone
        counts[_full_name(column, "classes")] = len(item_labels(relevance_filter).unique())
        counts[_full_name(column, "ties")] = measured.num_ties.get(column, 0)
    return counts


def _scores(
    relevance_filters: RelevanceFilters,
    measured: Measured,
    names: list[str],
    by_class: bool,
    draws: tuple[int, int],
) -> dict[str, Score]:
    """Averages and intervals of every label column and metric."""
    scores = {key: Score(value) for key, value in measured.numbers.items()}
    for column, relevance_filter in relevance_filters.items():
        for values, labels in (
            (measured.per_query, relevance_filter.labels.cpu()),
            (measured.per_item, item_labels(relevance_filter).cpu()),
        ):
            keys = [key for key in values if key[0] == column]
            if not keys:
                continue
            table = torch.stack([values[key] for key in keys], dim=1).cpu()  # [Q, M]
            groups = labels if by_class else None
            ends = bootstrap(table, groups, resamples=draws[0], seed=draws[1])
            averages = class_average(table, labels).tolist()
            if values is measured.per_item:  # values per item mean nothing by class
                averages = [math.nan] * len(keys)
            for key, end, average in zip(keys, ends, averages, strict=True):
                std = measured.over_starts.get(key, math.nan)
                scores[key] = Score(end.value, end.low, end.high, average, std)
    return {_full_name(c, name): scores[c, name] for c in relevance_filters for name in names}


def _columns(
    labels: Labels, gallery_labels: Labels | None
) -> dict[str, tuple[AnyLabels, AnyLabels | None]]:
    """Labels of queries and gallery by column; a single column has no name."""
    if not isinstance(labels, Mapping):
        assert not isinstance(gallery_labels, Mapping), "`as_labels` refuses it"
        return {"": (labels, gallery_labels)}
    others = gallery_labels if isinstance(gallery_labels, Mapping) else {}
    return {name: (column, others.get(name)) for name, column in labels.items()}


def _full_name(column: str, name: str) -> str:
    return f"{column}/{name}" if column else name


def _of_column(named: Mapping[str, Any], column: str) -> dict[str, Any]:
    """The entries of a label column under the names they have without it."""
    parts = {name: name.rpartition("/") for name in named}
    return {plain: named[name] for name, (of, _, plain) in parts.items() if of == column}


def _num_non_finite(embeddings: Tensor | None) -> int:
    """Rows with NaN or infinity; a wrong shape is refused elsewhere."""
    return 0 if embeddings is None or embeddings.ndim != 2 else len(non_finite_rows(embeddings))
