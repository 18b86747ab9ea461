"""Scatter ratio."""

import math

from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import by_class, class_sums, prepared


class Scatter:
    """Scatter ratio: how much of the spread of local features lies within one image.

    Formula:
        rows are unit features, labels say which image (or class) they belong to:
            within = mean over images of the mean of |x - mean of the image|^2
            total  = mean of |x - mean of all|^2
            ratio  = within / total, in [0, 1] when images have equally many features

    Paper:
        the image P. Jacob et al. draw of HORDE (Metric Learning with HORDE: High-Order
        Regularizer for Deep Embeddings, ICCV 2019, https://arxiv.org/abs/1908.02735), as a number

    Use:
        on the vectors of the last map, labels = image numbers: small means that every place of
        an image tells the same, so that half of it hidden changes little.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import Scatter
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(Scatter()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['ratio', 'total', 'within']
    """

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings)
        _, item_class, sizes = by_class(labels, len(x))
        sums = class_sums(x, item_class, len(sizes))
        squares = class_sums(x.square().sum(1, keepdim=True), item_class, len(sizes))[:, 0]
        within = (squares / sizes - (sums / sizes[:, None]).square().sum(1)).clamp(min=0).mean()
        total = float((x - x.mean(0)).square().sum(1).mean())
        ratio = float(within) / total if total > 0 else math.nan
        return {"within": float(within), "total": total, "ratio": ratio}
