"""Smooth triplet: every triplet of the batch through a soft hinge on scaled unit embeddings.

Paper    N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
         Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310
Formula  squared Euclidean distances q of unit embeddings:

             L = factor * mean over triplets (a, p, n) of log(1 + exp(scale^2 * (q(a,p) - q(a,n))))

         (the paper prints the two distances in the other order). `normalise=False` takes q of raw
         embeddings instead, which find their own scale.
Values   scale 4 (paper); their code learns it from 4 on (`learn_scale`) with rate 0.01 and decay
         5e-5, and its hand-written gradient is half of the true one, hence factor 1/2.
Use      samples_per_class sampler with 2 per class; no miner: all triplets count.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.derivatives import Back
from unseen.geometry import OWN, squared_distance, unit_squared_distance
from unseen.losses.base import Comparison, Loss, check_not_negative, check_positive


class SmoothTriplet(Loss):
    """scale: the length given to embeddings; learn_scale makes it a parameter with its own lr."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "vo_hays": {"learn_scale": True, "factor": 0.5, "lr": 0.01, "weight_decay": 5e-5},
    }

    def __init__(
        self,
        scale: float = 4.0,
        learn_scale: bool = False,
        normalise: bool = True,
        factor: float = 1.0,
        lr: float | None = 0.01,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        check_positive(scale=scale, factor=factor)
        check_not_negative(weight_decay=weight_decay, lr=lr or 0.0)
        self.scale = nn.Parameter(torch.tensor(float(scale)), requires_grad=learn_scale)
        self.measure = unit_squared_distance if normalise else squared_distance
        self.scale_invariant = normalise
        self.judged_raw = not normalise
        self.factor, self.own_lr, self.own_weight_decay = factor, lr, weight_decay

    def price(self, batch: Comparison) -> Tensor:
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
