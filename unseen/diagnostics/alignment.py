"""Alignment."""

import math

from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import by_class, class_sums, prepared


class Alignment:
    """Alignment: how near items of one class are to each other.

    Formula:
        mean of |x - y|^2 over all pairs of one class, unit embeddings; from sums over items, as
        the sum over ordered pairs of n items = 2 n sum of |x|^2 - 2 |sum of x|^2.

    Paper:
        T. Wang and P. Isola, Understanding Contrastive Representation Learning through Alignment
        and Uniformity on the Hypersphere, ICML 2020, https://arxiv.org/abs/2005.10242

    Use:
        with uniformity: a good space has both small. NaN without any pair.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import Alignment
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(Alignment()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['alignment']
    """

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, float]:
        x = prepared(embeddings)
        _, item_class, sizes = by_class(labels, len(x))
        num_pairs = int((sizes * (sizes - 1)).sum())
        if not num_pairs:
            return {"alignment": math.nan}
        sums = class_sums(x, item_class, len(sizes))
        squares = class_sums(x.square().sum(1, keepdim=True), item_class, len(sizes))[:, 0]
        total = 2 * (sizes * squares - sums.square().sum(1)).sum()
        return {"alignment": float(total.clamp(min=0)) / num_pairs}
