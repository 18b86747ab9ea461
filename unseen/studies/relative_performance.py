"""Metric-normalised relative performance: set-ups compared across losses and metrics.

    relative(rows, setup="sampler", fixed=("dataset", "loss"), metrics=("r1", "nmi"))

For fixed loss (and data) and metric, each set-up's value is divided by the largest among the
compared set-ups; the ratios of a set-up are then pooled over losses and metrics. 1 is best.

Paper    Roth et al., Revisiting training strategies and generalization performance in deep metric
         learning, ICML 2020, figures 2 and 3
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def relative(
    rows: Sequence[Mapping[str, Any]],
    *,
    setup: str,
    fixed: Sequence[str],
    metrics: Sequence[str],
) -> dict[str, list[float]]:
    """Pooled ratios by set-up, the highest mean first; empty values are left out."""
    groups: dict[tuple[Any, ...], list[tuple[str, float]]] = {}
    for row in rows:
        for metric in metrics:
            value = row.get(metric)
            if value is not None and not math.isnan(value):
                key = (metric, *(row[name] for name in fixed))
                groups.setdefault(key, []).append((str(row[setup]), float(value)))
    ratios: dict[str, list[float]] = {}
    for values in groups.values():
        best = max(value for _, value in values)
        if best <= 0:
            continue
        for name, value in values:
            ratios.setdefault(name, []).append(value / best)
    return dict(sorted(ratios.items(), key=lambda item: -sum(item[1]) / len(item[1])))
