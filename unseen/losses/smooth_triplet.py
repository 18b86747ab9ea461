"""Smooth triplet loss."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.core.comparison import Comparison
from unseen.core.derivatives import Back
from unseen.core.geometry import OWN, squared_distance, unit_squared_distance
from unseen.losses.base import Loss, check_not_negative, check_positive


class SmoothTripletLoss(Loss):
    """Smooth triplet: every triplet of the batch through a soft hinge on scaled unit embeddings.

    Formula:
        squared Euclidean distances q of unit embeddings:

            L = factor * mean over triplets (a, p, n) of log(1 + exp(scale^2 * (q(a,p) - q(a,n))))

        (the paper prints the two distances in the other order). `normalize=False` takes q of raw
        embeddings instead, which find their own scale.

    Paper:
        N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
        Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310

    Args:
        scale: the length given to embeddings; 4 (paper).
        learn_scale: makes it a parameter, as the authors' code does, from 4 on.
        normalize: unit embeddings; False takes raw ones.
        factor: of the whole; 1/2 in the authors' code, whose hand-written gradient is half of the
            true one.
        lr: of the scale; 0.01 (authors' code). None: the run's.
        weight_decay: of the scale; 5e-5 in the authors' code.

    Use:
        m_per_class sampler with 2 per class; no miner: all triplets count.

    Example:
        >>> import torch
        >>> from unseen.losses import SmoothTripletLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = SmoothTripletLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        1.282
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "vo_hays": {"learn_scale": True, "factor": 0.5, "lr": 0.01, "weight_decay": 5e-5},
    }

    def __init__(
        self,
        scale: float = 4.0,
        learn_scale: bool = False,
        normalize: bool = True,
        factor: float = 1.0,
        lr: float | None = 0.01,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(scale=scale, factor=factor)
        check_not_negative(weight_decay=weight_decay, lr=lr or 0.0)
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=learn_scale)
        self.measure = unit_squared_distance if normalize else squared_distance
        self.scale_invariant = normalize
        self.compares_raw = not normalize
        self.factor, self.own_lr, self.own_weight_decay = factor, lr, weight_decay

    def on_comparison(self, batch: Comparison) -> Tensor:
        scale = self.scale  # of this call: torch.func may lend another
        square = scale.square()

        def scaled(x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
            return square * self.measure(x, y, paired)

        def own(x: Tensor) -> tuple[Tensor, Back]:
            dist, back = OWN[self.measure](x)
            return dist.mul_(square), lambda grad: back(grad * square)

        if scale.requires_grad:
            return self.factor * batch.triplet_mean(scaled, None)
        return self.factor * batch.triplet_mean(scaled, None, own=own)
