"""Scores by the size of classes: head, middle and tail, a third of the classes each.

A mean over queries is a mean over large classes where classes differ in size: who has the most
images asks most. A third counts each of its classes once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unseen.core.statistics import class_average

NAMES = ("head", "middle", "tail")


@dataclass(frozen=True)
class Third:
    """A third of the classes, by size: how many, the sizes of its smallest and largest, and the
    mean of each metric over them."""

    name: str
    classes: int
    smallest: int
    largest: int
    metrics: dict[str, float]


def thirds(per_query: Mapping[str, Tensor], labels: Tensor, everyone: Tensor) -> list[Third] | None:
    """Of values of queries [Q] with classes [Q], by how many of `everyone` [n] are of a class; None
    where classes are too few or too much alike for the thirds to differ."""
    classes, sizes = torch.unique(everyone, return_counts=True)
    order = sizes.argsort(descending=True, stable=True)
    groups = [group for group in order.tensor_split(3) if len(group)]
    if len(groups) < 3 or int(sizes[groups[0]].min()) <= int(sizes[groups[2]].max()):
        return None
    result = []
    for name, group in zip(NAMES, groups, strict=True):
        asks = torch.isin(labels, classes[group])
        means = {
            metric: round(float(class_average(values[asks][:, None], labels[asks])[0]), 6)
            for metric, values in per_query.items()
            if len(values) == len(labels)
        }
        known = {metric: mean for metric, mean in means.items() if np.isfinite(mean)}
        ends = int(sizes[group].min()), int(sizes[group].max())
        result.append(Third(name, len(group), *ends, known))
    return result
