"""Every metric asked for, on every kind of label, from one pass over the similarities."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unseen.core.contracts import CpuProcesses, Progress
from unseen.evaluation.metric_names import Metric
from unseen.evaluation.pair_similarities import pair_scores
from unseen.evaluation.relevance_filters import RelevanceFilter
from unseen.evaluation.retrieve import in_chunks
from unseen.metrics.base import Clustering, Retrieval, Verification
from unseen.neighbors.block_products import WorkCounter
from unseen.neighbors.space import Space

Key = tuple[str, str]  # label column, metric name
RelevanceFilters = Mapping[str, RelevanceFilter]  # by label column


@dataclass(frozen=True)
class Measured:
    """Values before averaging."""

    per_query: dict[Key, Tensor] = field(default_factory=dict)  # retrieval [Q]
    per_item: dict[Key, Tensor] = field(default_factory=dict)  # clustering [items]
    over_starts: dict[Key, float] = field(default_factory=dict)  # standard deviation, clustering
    numbers: dict[Key, float] = field(default_factory=dict)  # verification
    num_ties: dict[str, int] = field(default_factory=dict)  # by label column
    counter: WorkCounter = field(default_factory=WorkCounter)  # of pairs that were compared


@dataclass(frozen=True)
class Effort:
    """How k-means is run, how much memory lists of neighbours may take, and who shares the work."""

    starts: int
    seed: int
    memory: int
    processes: CpuProcesses | None = None  # each seeks the neighbours of its part of the queries


def measure(
    space: Space,
    filters: RelevanceFilters,
    wanted: Mapping[str, Metric],
    effort: Effort,
    progress: Progress | None,
) -> Measured:
    """Retrieval, clustering and verification metrics, each kind only if asked for."""
    retrieval = {name: m for name, m in wanted.items() if isinstance(m, Retrieval)}
    clustering = {name: m for name, m in wanted.items() if isinstance(m, Clustering)}
    verification = {name: m for name, m in wanted.items() if isinstance(m, Verification)}
    stages = _Stages(progress, [bool(retrieval), bool(clustering), bool(verification)])
    result = Measured()
    if retrieval:
        _retrieval(space, filters, retrieval, result, effort=effort, progress=stages.of(0))
    if clustering:
        _clustering(space, filters, clustering, result, effort=effort, progress=stages.of(1))
    for column, relevance_filter in filters.items() if verification else ():
        scores = pair_scores(space, relevance_filter, stages.of(2))
        result.numbers.update({(column, n): m(scores) for n, m in verification.items()})
    return result


def worst(filters: RelevanceFilters, wanted: Mapping[str, Metric]) -> Measured:
    """What broken embeddings score."""
    result = Measured()
    for column, relevance_filter in filters.items():
        result.num_ties[column] = 0
        lone = relevance_filter.num_relevant == 0
        for name, metric in wanted.items():
            if isinstance(metric, Retrieval):
                zero = torch.zeros(len(lone), dtype=torch.float64, device=lone.device)
                result.per_query[column, name] = zero.masked_fill_(lone, math.nan)
            elif isinstance(metric, Clustering):
                zero = torch.zeros(len(item_labels(relevance_filter)), dtype=torch.float64)
                result.per_item[column, name] = zero
                result.over_starts[column, name] = 0.0
            else:
                result.numbers[column, name] = metric.worst
    return result


def item_labels(relevance_filter: RelevanceFilter) -> Tensor:
    """Labels of everything evaluated: the gallery, and the queries that are not in it."""
    return torch.cat(
        [relevance_filter.gallery_labels, relevance_filter.labels[relevance_filter.positions < 0]]
    )


def _retrieval(
    space: Space,
    filters: RelevanceFilters,
    metrics: Mapping[str, Retrieval],
    result: Measured,
    *,
    effort: Effort,
    progress: Progress,
) -> None:
    processes, total = effort.processes, len(space.queries)
    most = [int(f.num_relevant.max()) if len(f.num_relevant) else 0 for f in filters.values()]
    depth = max(metric.depth(relevant) for metric in metrics.values() for relevant in most)
    ranks = any(metric.needs_ranks for metric in metrics.values())
    chunks: dict[Key, list[Tensor]] = {(c, name): [] for c in filters for name in metrics}
    result.num_ties.update(dict.fromkeys(filters, 0))
    every = in_chunks(
        space,
        list(filters.values()),
        depth,
        ranks=ranks,
        grades=any(metric.needs_grades for metric in metrics.values()),
        memory=effort.memory,
        progress=progress,
        counter=result.counter,
        fraction=None if processes is None else processes.fraction(total),
    )
    for matches in every:
        for column, neighbors in zip(filters, matches, strict=True):
            if neighbors.tied is not None:
                result.num_ties[column] += int(neighbors.tied.sum())
            for name, metric in metrics.items():
                chunks[column, name].append(metric(neighbors))
    empty = torch.zeros(0, dtype=torch.float64)
    result.per_query.update({k: torch.cat(v) if v else empty for k, v in chunks.items()})
    if processes is not None:
        _gather(result, processes, len(range(total)[processes.fraction(total)]), space.left.device)


def _gather(result: Measured, processes: CpuProcesses, rows: int, device: torch.device) -> None:
    """What all processes measured, in each of them."""
    lengths = processes.lengths(rows, device)
    for key, values in result.per_query.items():
        result.per_query[key] = processes.gather(values, lengths)
    numbers = [*result.num_ties.values(), result.counter.pairs, result.counter.again]
    row = torch.tensor([numbers], dtype=torch.int64, device=device)
    summed = processes.gather(row, [1] * len(lengths)).sum(0).tolist()
    result.num_ties.update(zip(result.num_ties, summed, strict=False))
    result.counter.pairs, result.counter.again = summed[-2:]


def _clustering(
    space: Space,
    filters: RelevanceFilters,
    metrics: Mapping[str, Clustering],
    result: Measured,
    *,
    effort: Effort,
    progress: Progress,
) -> None:
    """k-means once for each number of classes; columns with as many classes share it."""
    from unseen.evaluation.clustering import cluster  # noqa: PLC0415 - where clusters are asked for

    items = torch.cat([space.gallery, space.queries[next(iter(filters.values())).positions < 0]])
    runs = {}
    for column, relevance_filter in filters.items():
        labels = item_labels(relevance_filter)
        k = len(labels.unique())
        if k not in runs:
            runs[k] = cluster(
                items,
                k,
                starts=effort.starts,
                normalize=space.center is None,
                seed=effort.seed,
                progress=progress,
            )
        for name, metric in metrics.items():
            values = torch.stack([metric.on_items(run.assignments, labels) for run in runs[k]])
            if k in (1, len(labels)):  # such clusters agree with the labels of any embeddings
                values = torch.full_like(values, math.nan)
            result.per_item[column, name] = values.mean(dim=0)
            spread = values.mean(dim=1).std() if len(values) > 1 else math.nan
            result.over_starts[column, name] = float(spread)


class _Stages:
    """One bar for several stages, each an equal part of the thousandths."""

    def __init__(self, progress: Progress | None, takes_place: list[bool]) -> None:
        self.progress = progress
        self.first = [sum(takes_place[:i]) for i in range(len(takes_place))]
        self.count = max(1, sum(takes_place))

    def of(self, stage: int) -> Progress:
        def advance(done: int, total: int) -> None:
            if self.progress is not None:
                fraction = (self.first[stage] + done / max(1, total)) / self.count
                self.progress(round(1000 * fraction), 1000)

        return advance
