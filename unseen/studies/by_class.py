"""Two set-ups compared over test classes: the interval that also a single seed has.

It says how far a difference would hold on other classes, not with other seeds, which is what
`published_comparison.gains` says.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unseen.statistics import Comparison, compare
from unseen.studies.published_comparison import judged
from unseen.studies.results import Run

ONE_SEED = (
    "One seed: intervals below are over test classes, not over seeds; and the best and the worst "
    "are picked from several, which makes their difference look larger than it is."
)


def over_classes(first: Sequence[Run], second: Sequence[Run]) -> Comparison | None:
    """What the second adds to the first in the study's metric, paired by seed; classes are drawn
    with replacement. None where no two runs can be paired."""
    others = {run.replicate: run.per_class for run in second if run.state == "done"}
    before, after, classes = [], [], []
    for run in first:
        one, two = run.per_class, others.get(run.replicate)
        if run.state != "done" or not one or not two or one["classes"] != two["classes"]:
            continue
        before.append(_per_query(one["sums"], one["counts"]))
        after.append(_per_query(two["sums"], two["counts"]))
        classes.append(torch.from_numpy(np.repeat(one["classes"], one["counts"])))
    if not before or not len(torch.cat(before)):
        return None
    return compare(torch.cat(before), torch.cat(after), torch.cat(classes))


def interval_text(found: Comparison | None) -> str:
    """+0.4 … +1.9, in points"""
    if found is None:
        return "–"
    return f"{100 * found.difference.low:+.1f} … {100 * found.difference.high:+.1f}"


def is_told_apart(found: Comparison | None) -> bool:
    """Whether the interval leaves 0 out."""
    return found is not None and (found.difference.low > 0 or found.difference.high < 0)


def class_verdict(found: Comparison | None, published: float) -> str:
    """Whether a published difference is seen outside of the interval, as `verdict` says."""
    if found is None:
        return judged(math.nan, (math.nan, math.nan), published)
    ours = found.difference
    return judged(ours.value, (ours.low, ours.high), published)


def _per_query(sums: Sequence[float], counts: Sequence[int]) -> Tensor:  # [Q]
    """Every query has the mean of its class: whole classes are drawn, so nothing is lost."""
    means = np.asarray(sums, dtype=np.float64) / np.asarray(counts, dtype=np.float64)
    return torch.from_numpy(np.repeat(means, counts))
