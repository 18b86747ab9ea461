"""Tournament: methods ranked in every experiment, the ranks added up.

    tournament({"resnet50 64": {"margin": 59.7, "triplet": 57.6}, ...}).places

Ranks      1 is best; equal values share the mean of their ranks; a method that failed (NaN) comes
           last, several of them share the last ranks
Totals     sum, mean and sample standard deviation (n - 1) of a method's ranks over experiments
Tests      Friedman: do the methods differ at all? Nemenyi: mean ranks closer than the critical
           difference q sqrt(k (k + 1) / 6 N) are not significantly different by N experiments
Paper      Demsar, Statistical comparisons of classifiers over multiple data sets, JMLR 2006
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.05


@dataclass(frozen=True)
class Place:
    """A method's ranks over all experiments."""

    method: str
    total: float
    mean: float
    std: float  # sample, n - 1; NaN with one experiment
    ranks: tuple[float, ...]  # in the order of the experiments


@dataclass(frozen=True)
class Tournament:
    """`places` from best to worst."""

    experiments: tuple[str, ...]
    places: tuple[Place, ...]
    friedman_p: float  # NaN below three methods or two experiments
    critical_difference: float

    def groups(self) -> list[tuple[int, int]]:
        """First and last place of every longest row of methods that are no significant
        difference."""
        means = [place.mean for place in self.places]
        rows: list[tuple[int, int]] = []
        for first, mean in enumerate(means):
            last = max(i for i, m in enumerate(means) if m - mean < self.critical_difference)
            if last > first and (not rows or last > rows[-1][1]):
                rows.append((first, last))
        return rows


def tournament(scores: Mapping[str, Mapping[str, float]]) -> Tournament:
    """Ranks of methods by experiment (higher values are better); every method plays in each."""
    if not scores:
        raise ValueError("a tournament needs at least one experiment")
    methods = list(next(iter(scores.values())))
    for experiment, values in scores.items():
        if set(values) != set(methods) or len(values) < 2:
            raise ValueError(
                f"every experiment must hold the same two or more methods: {experiment} has "
                f"{', '.join(values)}, the first has {', '.join(methods)}"
            )
    table = np.array([[values[method] for method in methods] for values in scores.values()])
    ranks = np.stack([_ranks(row) for row in table])  # [experiments, methods]
    std = ranks.std(axis=0, ddof=1) if len(ranks) > 1 else np.full(len(methods), np.nan)
    places = [
        Place(method, float(column.sum()), float(column.mean()), float(std[i]), tuple(column))
        for i, (method, column) in enumerate(zip(methods, ranks.T, strict=True))
    ]
    return Tournament(
        tuple(scores),
        tuple(sorted(places, key=lambda place: place.mean)),
        _friedman(ranks),
        critical_difference(len(methods), len(ranks)),
    )


def critical_difference(num_methods: int, num_experiments: int, level: float = LEVEL) -> float:
    """How far apart two mean ranks must lie to be significantly different (Nemenyi)."""
    q = float(stats.studentized_range.ppf(1 - level, num_methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(num_methods * (num_methods + 1) / (6 * num_experiments))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    ranks: NDArray[np.float64] = stats.rankdata(-np.where(np.isnan(values), -np.inf, values))
    return ranks


def _friedman(ranks: NDArray[np.float64]) -> float:
    num_experiments, num_methods = ranks.shape
    if num_methods < 3 or num_experiments < 2 or np.ptp(ranks, axis=1).max() == 0:
        return math.nan
    return float(stats.friedmanchisquare(*ranks.T).pvalue)
