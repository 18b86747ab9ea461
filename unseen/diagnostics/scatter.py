"""Scatter ratio: how much of the spread of local features lies within one picture.

Source   the picture P. Jacob et al. draw of HORDE (Metric Learning with HORDE: High-Order
         Regularizer for Deep Embeddings, ICCV 2019, https://arxiv.org/abs/1908.02735), as a number
Formula  rows are unit features, labels say which picture (or class) they belong to:
             within = mean over pictures of the mean of |x - mean of the picture|^2
             total  = mean of |x - mean of all|^2
             ratio  = within / total, in [0, 1] when pictures have equally many features
Use      on the vectors of the last map, labels = picture numbers: small means that every place of
         a picture tells the same, so that half of it hidden changes little.
"""

import math

from torch import Tensor

from unseen.diagnostics.base import by_class, class_sums, prepared
from unseen.relevance import AnyLabels


class Scatter:
    """No parameters."""

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings)
        _, item_class, sizes = by_class(labels, len(x))
        sums = class_sums(x, item_class, len(sizes))
        squares = class_sums(x.square().sum(1, keepdim=True), item_class, len(sizes))[:, 0]
        within = (squares / sizes - (sums / sizes[:, None]).square().sum(1)).clamp(min=0).mean()
        total = float((x - x.mean(0)).square().sum(1).mean())
        ratio = float(within) / total if total > 0 else math.nan
        return {"within": float(within), "total": total, "ratio": ratio}
