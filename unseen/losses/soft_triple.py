"""SoftTriple: softmax over classes with several centres each, the nearest centres counting most.

Paper    Q. Qian et al., SoftTriple Loss: Deep Metric Learning Without Triplet Sampling, ICCV 2019,
         https://arxiv.org/abs/1909.05235
Formula  s[i,c,k] the cosine between item i and centre k of class c, y the class of i:

             S[i,c] = sum over k of a[i,c,k] s[i,c,k],  a = softmax over k of s[i,c,k] / temperature
             L = cross entropy of  scale * (S[i,c] - margin * [c = y])
               + tau * sum over classes and pairs k < l of their centres of
                 sqrt(2 + 1e-5 - 2 w[c,k].w[c,l])  /  (C K (K - 1))

         The second term lets centres that are not needed merge. (Equation 16 of Roth et al. lost
         the last s[i,c,k], so that S is always 1; 18 counts each pair of centres twice. Equation
         2.30 of Psomas has neither the soft choice of a centre nor the second term.)
Values   10 centres, scale 20, temperature 0.1, margin 0.01, tau 0.2 (paper, where the temperature
         is gamma), centres at 1e-2 (authors' code; for a head on frozen features 1e-3 to 1e-1 were
         equal, slower ones 0.2 to 0.6 points of recall@1 behind: docs/choosing.md). Roth et al.
         2020: 2 centres, scale 8, at 1e-5. Psomas' thesis: at 1e-4, tuned 5e-5, in its code 1e-2;
         it gives gamma as 1/temperature.
Use      any sampler, no miner. One centre with tau 0 and margin 0 is normalized_softmax.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.derivatives import Back, differentiable
from unseen.geometry import scaled_cosine, unit
from unseen.losses.base import LabelLoss


class SoftTriple(LabelLoss):
    """centres: of each class. temperature: of an item's choice among them. tau: merges them."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"centres": 2, "scale": 8.0, "lr": 1e-5},
        "revisit_code": {"centres": 2, "scale": 8.0, "lr": 1e-5},
        "thesis": {"centres": 2, "margin": 0.1, "lr": 1e-4},
        "thesis_tuned": {
            "centres": 2,
            "scale": 78.0,
            "temperature": 1 / 58,
            "margin": 0.4,
            "tau": 0.4,
            "lr": 5e-5,
        },
        "thesis_code": {"centres": 2, "margin": 0.01, "tau": 0.4, "lr": 1e-2},
    }

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        centres: int = 10,
        scale: float = 20.0,
        temperature: float = 0.1,
        margin: float = 0.01,
        tau: float = 0.2,
        lr: float | None = 1e-2,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        if centres < 1:
            raise ValueError(f"centres must be at least 1, got {centres}")
        if scale <= 0 or temperature <= 0:
            raise ValueError(
                "scale and temperature must be positive, "
                f"got scale={scale}, temperature={temperature}"
            )
        if tau < 0:
            raise ValueError(f"tau must not be negative, got {tau}")
        self.scale, self.temperature, self.margin, self.tau = scale, temperature, margin, tau
        self.centres = nn.Parameter(torch.empty(num_classes, centres, embedding_size))
        nn.init.kaiming_uniform_(self.centres, a=math.sqrt(5))

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        centres = self.centres.to(embeddings.dtype)  # [C, K, D]
        # classes last: sums over centres then run over long rows, much faster than over short ones
        columns = centres.transpose(0, 1).flatten(0, 1)  # [K * C, D]
        sim = scaled_cosine(embeddings, columns, 1 / self.temperature)  # [N, K * C]
        sim = sim.view(len(embeddings), -1, self.num_classes)  # [N, K, C]
        logits = _soft_maximum(sim, self.scale * self.temperature)  # [N, C]
        margin = F.one_hot(labels, self.num_classes) * (self.scale * self.margin)
        loss = F.cross_entropy(logits - margin, labels)
        return loss if self.tau == 0 else loss + self.tau * self._spread(unit(centres))

    def _spread(self, centres: Tensor) -> Tensor:
        num_classes, num_centres, _ = centres.shape
        if num_centres == 1:
            return centres.sum() * 0
        k, other = torch.triu_indices(num_centres, num_centres, 1, device=centres.device)
        gram = centres @ centres.transpose(1, 2)  # [C, K, K]
        dist = (2 + 1e-5 - 2 * gram[:, k, other]).sqrt()  # [C, K (K - 1) / 2]
        return dist.sum() / (num_classes * num_centres * (num_centres - 1))


def _soft_maximum(x: Tensor, factor: float) -> Tensor:  # [N, K, C] -> [N, C]
    """factor times the sum over k of softmax(x) x. These are by far the largest tensors of any
    loss: plain operations would make eight of them instead of three."""

    def formula(x: Tensor) -> Tensor:
        return factor * (torch.softmax(x, dim=1) * x).sum(dim=1)

    def written(x: Tensor) -> tuple[Tensor, Back]:
        weights = torch.softmax(x, dim=1)
        value = (weights * x).sum(dim=1)

        def back(grad: Tensor) -> tuple[Tensor]:
            slope = (x - (value - 1)[:, None]).mul_(weights)  # [N, K, C]
            return (slope.mul_((factor * grad)[:, None]),)

        return factor * value, back

    largest: Tensor = differentiable(formula, written, x)
    return largest
