"""Density of each class."""

import math
from typing import Any

from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import by_class, class_sums, prepared


class Density:
    """Density of each class: mean squared distance of its items from their mean.

    Formula:
        D(c) = mean of |x - mean of c|^2 = mean of |x|^2 - |mean of c|^2, unit embeddings;
        in [0, 1].

    Paper:
        Y. Li et al., Deep Metric Learning with Density Adaptivity, IEEE TMM 2020 (the statistic
        its regularizer steers: regularizers/density)

    Counts:
        classes with one item have no spread and are left out.

    Use:
        on training embeddings: classes far denser than the rest are overfitted, far wider ones are
        hard or wrongly labelled.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import Density
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(Density()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['classes', 'density', 'mean']
    """

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        x = prepared(embeddings)
        classes, item_class, sizes = by_class(labels, len(x))
        means = class_sums(x, item_class, len(sizes)) / sizes[:, None]
        squares = class_sums(x.square().sum(1, keepdim=True), item_class, len(sizes))[:, 0]
        density = (squares / sizes - means.square().sum(1)).clamp(min=0)  # [C]
        several = sizes > 1
        density, classes = density[several], classes[several]
        mean = float(density.mean()) if len(density) else math.nan
        return {"mean": mean, "classes": classes, "density": density}
