"""Singular values inside classes."""

import math
from typing import Any

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels
from unseen.diagnostics.base import by_class, class_sums, prepared

CHUNK = 2**24  # numbers decomposed at a time


class ClassSpectrum:
    """Singular values inside classes: how many directions a class spreads in.

    Formula:
        for each class with at least 2 items: singular values of its rows (unit embeddings),
        divided by their sum, zeros up to D; then the mean over classes.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473 (figure 10)

    Args:
        centered: take the class mean away first; False, as in the paper.
        normalize: unit embeddings.

    Use:
        on training embeddings. At most n values of a class of n items are not 0, so compare sets
        with equal class sizes only.

    Example:
        >>> import torch
        >>> from unseen.diagnostics import ClassSpectrum
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> sorted(ClassSpectrum()(embeddings, torch.tensor([0, 0, 1, 1])))
        ['num_classes', 'spectrum']
    """

    def __init__(self, centered: bool = False, normalize: bool = True) -> None:
        self.centered, self.normalize = centered, normalize

    def __call__(self, embeddings: Tensor, labels: AnyLabels) -> dict[str, Any]:
        x = prepared(embeddings, self.normalize)
        _, item_class, sizes = by_class(labels, len(x))
        if self.centered:
            x = x - (class_sums(x, item_class, len(sizes)) / sizes[:, None])[item_class]
        by_size = torch.argsort(sizes, stable=True, descending=True)
        by_size = by_size[sizes[by_size] > 1]  # classes of like size share a padded batch
        total, counted = x.new_zeros(x.shape[1]), 0
        order = torch.argsort(item_class, stable=True)
        first = sizes.cumsum(0) - sizes
        while len(by_size):
            most = max(1, CHUNK // (int(sizes[by_size[0]]) * x.shape[1]))
            batch, by_size = by_size[:most], by_size[most:]
            sigma = _batch_spectra(x, order, first[batch], sizes[batch])  # [B, min(n, D)]
            mass = sigma.sum(1, keepdim=True)
            counted += int((mass > 0).sum())
            total[: sigma.shape[1]] += (sigma / mass.clamp(min=1e-300)).sum(0)
        return {"spectrum": total / (counted or math.nan), "num_classes": counted}


def _batch_spectra(x: Tensor, order: Tensor, first: Tensor, sizes: Tensor) -> Tensor:
    """Singular values of several classes at once; rows of zeros do not change them."""
    place = torch.arange(int(sizes.max()), device=x.device)
    inside = place < sizes[:, None]
    rows = x[order[(first[:, None] + place).clamp(max=len(order) - 1)]]  # [B, n, D]
    return torch.linalg.svdvals(rows * inside[:, :, None])
