"""Distances inside and between classes."""

import math
from typing import Literal

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import by_class, class_sums, prepared
from unseen.neighbors.space import to_sphere


class Spread:
    """Distances inside classes, between classes, and their ratio.

    Formula:
        with unit embeddings and d = 1 - cos:
            intra = mean over classes of the mean of d over the ordered pairs of the class
            inter = mean over ordered pairs of classes of d between their unit mean directions
            ratio = intra / inter
        Sums over pairs follow from sums over items, as sum of d over the pairs of n items
        = n^2 - |sum of x|^2: no pair is visited.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473 (cosine distance: the code's)

        distance="euclidean", as the paper prints it: |x - y| of unit embeddings, intra the mean
        over the ordered pairs of all classes (one Z for all), inter that of plain class means.

    Args:
        distance: cosine, or euclidean; the paper's code takes the first, its text says "distance".

    Counts:
        classes with one item have no pairs and are left out of intra, not of inter.

    Use:
        on training embeddings: a small ratio means tight classes, and often poor generalisation.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import Spread
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(Spread()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['inter', 'intra', 'ratio']
    """

    def __init__(self, distance: Literal["cosine", "euclidean"] = "cosine") -> None:
        if distance not in ("cosine", "euclidean"):
            raise ValueError(f"distance must be cosine or euclidean, got {distance!r}")
        self.distance = distance

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings)
        _, item_class, sizes = by_class(labels, len(x))
        measured = _euclidean if self.distance == "euclidean" else _cosine
        intra, inter = measured(x, item_class, sizes)
        return {"intra": intra, "inter": inter, "ratio": intra / inter if inter else math.nan}


def _euclidean(x: Tensor, item_class: Tensor, sizes: Tensor) -> tuple[float, float]:
    groups = x[item_class.argsort()].split(sizes.tolist())
    total = sum(float(torch.cdist(each, each).sum()) for each in groups)
    pairs, num_pairs = int((sizes * (sizes - 1)).sum()), len(sizes) * (len(sizes) - 1)
    means = class_sums(x, item_class, len(sizes)) / sizes[:, None]
    between = float(torch.cdist(means, means).sum())
    return total / pairs if pairs else math.nan, between / num_pairs if num_pairs else math.nan


def _cosine(x: Tensor, item_class: Tensor, sizes: Tensor) -> tuple[float, float]:
    sums = class_sums(x, item_class, len(sizes))  # [C, D]
    n = sizes.double()
    intra = inter = math.nan
    several = sizes > 1
    if several.any():
        # |x| is 1 save for zero rows, hence the sum of squares and not n
        squares = class_sums(x.square().sum(1, keepdim=True), item_class, len(sizes))[:, 0]
        pairs = n * (n - 1)
        total = pairs - (sums.square().sum(1) - squares)
        intra = float((total / pairs)[several].mean())
    if len(sizes) > 1:
        means = to_sphere(sums)
        num_pairs = len(sizes) * (len(sizes) - 1)
        products = means.sum(0).square().sum() - means.square().sum()
        inter = float(1 - products / num_pairs)
    return intra, inter
