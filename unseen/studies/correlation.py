"""Correlation of measures over methods: Pearson's r with its interval, and the line of a scatter.

    pearson([62.1, 62.7, 61.5], [67.6, 67.7, 66.5]).r
    matrix({"R@1": [...], "NMI": [...], "F1": [...]})

One value per method (the mean over its seeds). Pairs with a missing value (NaN) are left out.
Interval   95 %, by Fisher's transform: tanh(atanh r -+ 1.96 / sqrt(n - 3)); none below 4 points
Line       least squares, y = slope x + intercept
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Correlation:
    """r with the ends of its 95 % interval, and the line; NaN where undefined."""

    r: float
    low: float
    high: float
    p: float  # two-sided
    slope: float
    intercept: float
    count: int


def pearson(first: Sequence[float], second: Sequence[float]) -> Correlation:
    """How far two measures go together over methods."""
    if len(first) != len(second):
        raise ValueError(f"both must value the same methods, got {len(first)} and {len(second)}")
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    nan = math.nan
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(nan, nan, nan, nan, nan, nan, len(x))
    line = stats.linregress(x, y)
    r = float(np.clip(line.rvalue, -1, 1))
    low, high = stats.pearsonr(x, y).confidence_interval() if len(x) > 3 else (nan, nan)
    return Correlation(
        r,
        float(low),
        float(high),
        float(line.pvalue),
        float(line.slope),
        float(line.intercept),
        len(x),
    )


def matrix(measures: Mapping[str, Sequence[float]]) -> list[list[Correlation]]:
    """Every measure with every other, in their order."""
    columns = list(measures.values())
    return [[pearson(one, other) for other in columns] for one in columns]
