"""Scores by the size of classes: head, middle and tail, a third of the classes each.

A mean over queries is a mean over large classes where classes differ in size: who has the most
pictures asks most. A third counts each of its classes once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unseen.statistics import class_average

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
    parts = [part for part in order.tensor_split(3) if len(part)]
    if len(parts) < 3 or int(sizes[parts[0]].min()) <= int(sizes[parts[2]].max()):
        return None
    found = []
    for name, part in zip(NAMES, parts, strict=True):
        asks = torch.isin(labels, classes[part])
        means = {
            metric: round(float(class_average(values[asks][:, None], labels[asks])[0]), 6)
            for metric, values in per_query.items()
            if len(values) == len(labels)
        }
        known = {metric: mean for metric, mean in means.items() if np.isfinite(mean)}
        ends = int(sizes[part].min()), int(sizes[part].max())
        found.append(Third(name, len(part), *ends, known))
    return found
