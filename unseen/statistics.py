"""How sure a number is: bootstrap intervals, paired comparisons, means over seeds and classes.

Values stay per query until here; NaN marks a query that has no value and is left out. The sample
can be the queries, or the classes: pictures of one class succeed and fail together, so an interval
over queries is too short when the question is "how would this do on other unseen classes?".

Everything is drawn from a generator seeded by the caller: same values and seed, same interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import special
from torch import Tensor

RESAMPLES = 1000
POWER = 0.8
MIN_CLASSES = 3  # fewer say nothing of classes to come: no threshold is calibrated on them
CHUNK = 2**22  # draws made at a time


@dataclass(frozen=True)
class Interval:
    """A number and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same queries: how much better the second is, and if that is chance."""

    difference: Interval
    p: float  # two-sided, by flipping signs
    improved: Tensor  # positions of queries the second does better on
    worsened: Tensor


@dataclass(frozen=True)
class Effect(Interval):
    """What one method adds to another, with the interval over seeds and classes. detectable: the
    smallest true difference that a study like this tells apart from 0 in `POWER` of all cases."""

    detectable: float
    seeds: int
    classes: int

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Spread:
    """One number over several seeds."""

    mean: float
    std: float  # of a single run (n - 1 below the sum)
    low: float  # 95 % t-interval of the mean
    high: float
    count: int


def bootstrap(
    values: Tensor,
    groups: Tensor | None = None,
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Percentile intervals of the means of the columns of `values` [Q, M], all on the same draws.

    `groups` [Q], such as class labels, are drawn as a whole; without them queries are drawn.
    A query that is NaN in any column is left out of all. No resamples: the ends are NaN.
    """
    known = ~values.isnan().any(dim=1)
    values = values[known].double().cpu()
    if not len(values):
        return [Interval(math.nan, math.nan, math.nan)] * values.shape[1]
    means = values.mean(dim=0)
    if resamples == 0:
        return [Interval(float(mean), math.nan, math.nan) for mean in means]
    sums, sizes = values, torch.ones(len(values), dtype=torch.float64)
    if groups is not None:
        sums, sizes = _group_sums(values, groups.cpu()[known])
    drawn = _resampled_means(sums - sizes[:, None] * means, sizes, resamples, seed) + means
    tail = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(drawn, tail, dim=0)
    return [Interval(*map(float, triple)) for triple in zip(means, low, high, strict=True)]


def class_average(values: Tensor, labels: Tensor) -> Tensor:
    """Mean over classes of the mean over a class's queries, of each column of `values` [Q, M]."""
    known = ~values.isnan().any(dim=1)
    if not known.any():
        return values.new_full((values.shape[1],), math.nan)
    sums, sizes = _group_sums(values[known].double(), labels[known])
    return (sums / sizes[:, None]).mean(dim=0)


def compare(
    first: Tensor,
    second: Tensor,
    groups: Tensor | None = None,
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Is `second` better than `first` on the same queries [Q]? Positive difference: it is.

    The p-value asks how often random signs on the differences (of whole groups, if given) reach a
    mean as far from 0; it is never below 1 / (resamples + 1).
    """
    if first.shape != second.shape:
        raise ValueError(f"both must value the same queries, got {len(first)} and {len(second)}")
    difference = (second - first).double().cpu()  # [Q]
    interval = bootstrap(
        difference[:, None], groups, resamples=min(resamples, RESAMPLES), seed=seed
    )[0]
    known = ~difference.isnan()
    sums = difference[known][:, None]
    if groups is not None:
        sums, _ = _group_sums(sums, groups.cpu()[known])
    sums = sums[sums[:, 0] != 0]  # where both agree a sign changes nothing
    total = abs(float(sums.sum())) - 1e-12  # equal sums may differ in the last bit
    generator = torch.Generator().manual_seed(seed)
    reached, rows = 0, max(1, CHUNK // max(1, len(sums)))
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), len(sums))
        signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).double() * 2 - 1
        reached += int(((signs @ sums).abs() >= total).sum())
    return Comparison(
        difference=interval,
        p=(reached + 1) / (resamples + 1),
        improved=(difference > 0).nonzero()[:, 0],
        worsened=(difference < 0).nonzero()[:, 0],
    )


def over_seeds(values: Sequence[float], level: float = 0.95) -> Spread:
    """Mean, standard deviation and t-interval; with one value the ends are NaN."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not len(sample):
        raise ValueError(f"values must be at least one number, got {list(sample.shape)}")
    mean = float(sample.mean())
    if len(sample) == 1:
        return Spread(mean, math.nan, math.nan, math.nan, 1)
    std = float(sample.std(ddof=1))
    half = float(special.stdtrit(len(sample) - 1, (1 + level) / 2)) * std / math.sqrt(len(sample))
    return Spread(mean, std, mean - half, mean + half, len(sample))


def crossed(
    differences: ArrayLike, counts: ArrayLike | None = None, level: float = 0.95
) -> Effect:  # [S, C], [C]
    """The mean difference of S seeds on C classes, and how far it would hold with other seeds and
    on other classes: both are drawn from many, and each seed meets each class.

    Weights  class c counts by its queries n[c]: w[c] = n[c] / mean(n); m = mean(w d);
             u[s, c] = w[c] (d[s, c] - m) has mean 0 and, to first order, the error of m
    Spread   mean squares of a two-way table: MS_s = C sum(u[s, .]^2) / (S - 1) of its means by
             seed, MS_c = S sum(u[., c]^2) / (C - 1) by class, MS_r of the rest, with
             (S - 1)(C - 1) degrees of freedom
    Error    e^2 = max(MS_s + MS_c - MS_r, MS_s, MS_c) / S C: of the mean over both
    Interval m -+ t e at Satterthwaite's degrees of freedom, (S C e^2)^2 over the sum of MS^2 / df,
             at least the smaller of S - 1 and C - 1
    Power    detectable = delta e / c4: a t-test whose noncentrality is delta sees it in `POWER` of
             all cases; c4 = sqrt(2 / df) Gamma((df + 1) / 2) / Gamma(df / 2), by which an error
             from few degrees of freedom is too small on average

    With one seed (or one class) the interval is over the other alone; of a single number, or with
    a NaN, there is none.
    """
    table = np.asarray(differences, dtype=np.float64)
    weights = np.ones(table.shape[1]) if counts is None else np.asarray(counts, dtype=np.float64)
    num_seeds, num_classes = table.shape
    weights = weights / weights.mean()
    mean = float((weights * table).mean())
    rest = weights * (table - mean)
    by_seed, by_class = rest.mean(axis=1, keepdims=True), rest.mean(axis=0, keepdims=True)
    parts = (by_seed, by_class, rest - by_seed - by_class)
    sums = np.array([np.broadcast_to(part**2, table.shape).sum() for part in parts])
    free = np.array([num_seeds - 1, num_classes - 1, (num_seeds - 1) * (num_classes - 1)])
    if math.isnan(mean) or not free.any():
        return Effect(mean, math.nan, math.nan, math.nan, num_seeds, num_classes)
    squares = sums / np.maximum(free, 1)
    most = max(squares[0] + squares[1] - squares[2], squares[0], squares[1])
    spread = float((squares**2 / np.maximum(free, 1)).sum())
    fewest = min(number for number in free[:2] if number)
    freedom = max(most**2 / spread, fewest) if spread else fewest
    error = math.sqrt(most / table.size)
    t = float(special.stdtrit(freedom, (1 + level) / 2))
    seen = float(special.nctdtrinc(freedom, 1 - POWER, t)) * error / _c4(freedom)
    return Effect(mean, mean - t * error, mean + t * error, seen, num_seeds, num_classes)


def _c4(freedom: float) -> float:
    ratio = special.gammaln((freedom + 1) / 2) - special.gammaln(freedom / 2)
    return math.sqrt(2 / freedom) * math.exp(ratio)


def _group_sums(values: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:  # [C, M], [C]
    _, group = torch.unique(groups, return_inverse=True)
    sizes = torch.bincount(group).to(values.dtype)
    return values.new_zeros(len(sizes), values.shape[1]).index_add_(0, group, values), sizes


def _resampled_means(
    sums: Tensor, sizes: Tensor, resamples: int, seed: int
) -> Tensor:  # [resamples, M]
    """Groups drawn with replacement, as many as there are; mean of what they contain."""
    count = len(sums)
    generator = torch.Generator().manual_seed(seed)
    table = torch.cat([sums, sizes[:, None]], dim=1)  # [C, M + 1]
    parts = []
    rows = max(1, CHUNK // count)
    for start in range(0, resamples, rows):
        num = min(rows, resamples - start)
        draws = torch.randint(0, count, (num, count), generator=generator)
        draws += torch.arange(num)[:, None] * count
        times = torch.bincount(draws.view(-1), minlength=num * count).view(num, count)
        parts.append(times.double() @ table)
    drawn = torch.cat(parts)
    return drawn[:, :-1] / drawn[:, -1:]
