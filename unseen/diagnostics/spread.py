"""Distances inside and between classes."""

import math

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

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings)
        _, item_class, sizes = by_class(labels, len(x))
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
        return {"intra": intra, "inter": inter, "ratio": intra / inter if inter else math.nan}
