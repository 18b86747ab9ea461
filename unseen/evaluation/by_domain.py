"""Scores of one model on each of its domains, and their mean: every query asks the gallery of all
domains, and counts for its own."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from unseen.core.statistics import RESAMPLES, bootstrap, class_average
from unseen.evaluation.evaluate import Evaluation, Score

MEAN = "mean of domains"


def by_domain(
    scores: Evaluation, domains: Tensor, labels: Tensor, names: Sequence[str], seed: int
) -> dict[str, Evaluation]:
    """By the name of each domain, and their mean, in which small domains count as much as large
    ones. domains, labels: of the queries [Q]. Metrics without values per query are left out; those
    of a domain have NaN for the queries of others."""
    metrics = [name for name, values in scores.per_query.items() if len(values) == len(domains)]
    if not metrics:
        return {}
    result: dict[str, Evaluation] = {}
    table = torch.stack([scores.per_query[name] for name in metrics], dim=1)  # [Q, M]
    for code, name in enumerate(names):
        rows = domains == code
        if not rows.any():
            continue
        ends = bootstrap(table[rows], seed=seed)
        averages = class_average(table[rows], labels[rows]).tolist()
        values = {
            metric: Score(end.value, end.low, end.high, average)
            for metric, end, average in zip(metrics, ends, averages, strict=True)
        }
        own = dict(zip(metrics, table.masked_fill(~rows[:, None], math.nan).T, strict=True))
        result[name] = _evaluation(scores, values, int((~table[rows, 0].isnan()).sum()), own)
    each = list(result.values())
    means = {metric: _mean([one.values[metric] for one in each]) for metric in metrics}
    queries = sum(one.counts["queries"] for one in each)
    return result | {MEAN: _evaluation(scores, means, queries, {})}


def _mean(scores: Sequence[Score]) -> Score:
    """Domains are independent: the half widths of their intervals add up in squares."""
    value = sum(score.value for score in scores) / len(scores)
    halves = [(score.high - score.low) / 2 for score in scores]
    half = math.sqrt(sum(half**2 for half in halves)) / len(scores)
    average = sum(score.class_average for score in scores) / len(scores)
    return Score(value, value - half, value + half, average)


def _evaluation(
    scores: Evaluation, values: dict[str, Score], queries: int, per_query: dict[str, Tensor]
) -> Evaluation:
    counts = {"gallery": scores.counts["gallery"], "queries": queries}
    return Evaluation(values, per_query, counts, scores.intervals, RESAMPLES)
