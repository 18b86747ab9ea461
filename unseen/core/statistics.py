"""How sure a number is: bootstrap intervals, paired comparisons, means over seeds and classes.

Values stay per query until here; NaN marks a query that has no value and is left out. The sample
can be the queries, or the classes: images of one class succeed and fail together, so an interval
over queries is too short when the question is "how would this do on other unseen classes?".

Everything is drawn from a generator seeded by the caller: same values and seed, same interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import special
from torch import Tensor

RESAMPLES = 1000
LEVEL = 0.95
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
    variances: tuple[float, float, float]  # of the mean, by the mean squares of `crossed`
    freedom: tuple[float, float]  # degrees of, for seeds and classes

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
    level: float = LEVEL,
    seed: int = 0,
) -> list[Interval]:
    """Percentile intervals of the means of the columns of `values` [Q, M], all on the same draws.

    `groups` [Q], such as class labels, are drawn as a whole; without them queries are drawn.
    A query that is NaN in any column is left out of all. No resamples: the ends are NaN.

    Means of C drawn groups spread by sqrt((C - 1) / C) too little, and like a normal where few
    groups ask for t: the ends are the quantiles Phi(-+ sqrt(C / (C - 1)) t), with the degrees of
    freedom of `crossed` for C classes.
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
    rest, count = sums - sizes[:, None] * means, len(sums)
    drawn = (_resampled_means(rest, sizes, resamples, seed) + means).numpy()
    t = special.stdtrit(_class_freedom(rest.numpy()), (1 + level) / 2)  # [M]
    far = special.ndtr(math.sqrt(count / max(count - 1, 1)) * t)
    return [
        Interval(float(mean), *map(float, np.quantile(column, (1 - fraction, fraction))))
        for mean, column, fraction in zip(means, drawn.T, far, strict=True)
    ]


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


def over_seeds(values: Sequence[float], level: float = LEVEL) -> Spread:
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


def crossed(differences: ArrayLike, counts: ArrayLike | None = None) -> Effect:  # [S, C], [C]
    """The mean difference of S seeds on C classes, and how far it would hold with other seeds and
    on other classes: both are drawn from many, and each seed meets each class.

    Weights  class c counts by its queries n[c]: w[c] = n[c] / mean(n); m = mean(w d);
             u[s, c] = w[c] (d[s, c] - m) has mean 0 and, to first order, the error of m
    Spread   mean squares of a two-way table, over S C: V_s = sum(u[s, .]^2) / S (S - 1) of its
             means by seed, V_c = sum(u[., c]^2) / C (C - 1) by class, V_r of the rest, with
             (S - 1)(C - 1) degrees of freedom
    Freedom  f_s = S - 1; f_c = min(C - 1, 2 / (sum(u[., c]^4) / sum(u[., c]^2)^2 - 1 / C)), fewer
             where few classes carry the spread, large ones or rare ones that differ
    Interval m -+ h, h^2 = max(t(f_s)^2 V_s + t(f_c)^2 max(V_c - V_r, 0), t(f_c)^2 V_c): each part
             has the t of its own degrees of freedom, so that the interval holds whichever part is
             large (Banerjee, Sankhya 22, 1960; Satterthwaite's t is too short where V_s, known
             from 2 degrees of freedom, happens to be small)
    Power    detectable = delta e / c4: e^2 is h^2 without the t, f are Satterthwaite's degrees of
             freedom of h^2; delta is the noncentrality at which t with f of them is beyond h / e
             in `POWER` of all cases; c4 = sqrt(2 / f) Gamma((f + 1) / 2) / Gamma(f / 2), by which
             an error from few degrees of freedom is too small on average

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
    free = (num_seeds - 1, num_classes - 1, (num_seeds - 1) * (num_classes - 1))
    seeds, classes, both = (
        float(np.broadcast_to(component**2, table.shape).sum()) / max(number, 1) / table.size
        for component, number in zip(parts, free, strict=True)
    )
    freedom = (float(free[0]), min(free[1], float(_class_freedom(by_class[0]))))
    half, seen = math.nan, math.nan
    if not math.isnan(mean) and any(free):
        half, seen = _width((seeds, classes, both), freedom, LEVEL)
    size = (num_seeds, num_classes)
    return Effect(mean, mean - half, mean + half, seen, *size, (seeds, classes, both), freedom)


def simultaneous(effects: Sequence[Effect | None], pairs: int) -> list[Effect | None]:
    """The effects with intervals that hold together, for `pairs` comparisons that were made or
    picked from: each at the level 1 - 0.05 / pairs (Bonferroni); None stays None.

    So far out the t of few seeds is long, because an own V_s is tiny in some of many pairs. So V_s
    may be the mean of the K effects where that is larger, with 2 K / (K + 1) times the degrees of
    freedom (differences that share a method have variances whose correlation is 1/4; 1/2 is
    assumed): the interval is the shorter of the two.

    Args:
        effects: of one family, such as all methods against one.
        pairs: at least as many as effects; all pairs of methods where one was picked as the best.

    Example:
        simultaneous([crossed(first), crossed(second)], pairs=2)
    """
    known = [each for each in effects if each and not math.isnan(each.half)]
    shared = sum(each.variances[0] for each in known) / max(1, len(known))
    more, level = 2 * len(known) / (len(known) + 1), 1 - (1 - LEVEL) / max(1, pairs)

    def widened(each: Effect) -> Effect:
        (seeds, classes, rest), (of_seeds, of_classes) = each.variances, each.freedom
        half, seen = min(
            _width(each.variances, each.freedom, level),
            _width((max(seeds, shared), classes, rest), (more * of_seeds, of_classes), level),
        )
        return replace(each, low=each.value - half, high=each.value + half, detectable=seen)

    return [widened(each) if each in known else each for each in effects]


def _width(
    variances: tuple[float, float, float], freedom: tuple[float, float], level: float
) -> tuple[float, float]:
    """Half of the interval of `crossed`, and the difference that it would show."""
    seeds, classes, rest = variances
    free = np.maximum(freedom, 1)  # what has none has no variance
    squares = special.stdtrit(free, (1 + level) / 2) ** 2
    ways = [np.array([seeds, max(classes - rest, 0)]), np.array([0, classes])]
    parts = max(ways, key=lambda way: float(squares @ way))
    half, error = math.sqrt(squares @ parts), math.sqrt(parts.sum())
    if not error:
        return 0.0, 0.0
    mixed = float(half**4 / ((squares * parts) ** 2 / free).sum())
    return half, float(special.nctdtrinc(mixed, 1 - POWER, half / error)) * error / _c4(mixed)


def _class_freedom(deviations: NDArray[np.float64]) -> NDArray[np.float64]:  # [C, ...] -> [...]
    """Degrees of freedom of the variance of a mean of C classes; see `crossed`."""
    most = max(len(deviations) - 1, 1)
    squares = deviations**2 / np.maximum((deviations**2).sum(axis=0), np.finfo(np.float64).tiny)
    excess = (squares**2).sum(axis=0) - 1 / len(deviations)
    return np.asarray(2 / np.maximum(excess, 2 / most))


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
