"""SoftTriple loss."""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import scaled_cosine, unit
from unseen.losses.base import LabelLoss


class SoftTripleLoss(LabelLoss):
    """SoftTriple: softmax over classes of several centres, the nearest centres counting most.

    Formula:
        s[i,c,k] the cosine between item i and centre k of class c, y the class of i:

            S[i,c] = sum over k of a[i,c,k] s[i,c,k],  a = softmax over k of s[i,c,k] / temperature
            L = cross entropy of  scale * (S[i,c] - margin * [c = y])
              + tau * sum over classes and pairs k < l of their centres of
                sqrt(2 + 1e-5 - 2 w[c,k].w[c,l])  /  (C K (K - 1))

        The second term lets centres that are not needed merge. (Equation 16 of Roth et al. lost
        the last s[i,c,k], so that S is always 1; 18 counts each pair of centres twice. Equation
        2.30 of Psomas has neither the soft choice of a centre nor the second term.)

    Paper:
        Q. Qian et al., SoftTriple Loss: Deep Metric Learning Without Triplet Sampling, ICCV 2019,
        https://arxiv.org/abs/1909.05235

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        centers: of each class; 10 (paper), 2 (Roth et al. 2020).
        scale: of the logits; 20 (paper), 8 (Roth et al. 2020).
        temperature: of an item's choice among the centres; 0.1 (paper, where it is gamma; Psomas'
            thesis gives gamma as 1/temperature).
        margin: of the own class; 0.01 (paper).
        tau: weight of the term that merges centres; 0.2 (paper).
        lr: of the centres; 1e-2 (authors' code; for a head on frozen features 1e-3 to 1e-1 were
            equal, slower ones 0.2 to 0.6 points of recall@1 behind: docs/choosing.md), 1e-5 (Roth
            et al. 2020), 1e-4, tuned 5e-5, in its code 1e-2 (Psomas' thesis). None: the run's.

    Use:
        any sampler, no miner. One centre with tau 0 and margin 0 is normalized_softmax.

    Example:
        >>> import torch
        >>> from unseen.losses import SoftTripleLoss
        >>> loss = SoftTripleLoss(num_classes=2, embedding_size=4)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).backward()
        >>> [tuple(each.shape) for each in loss.parameters()]
        [(2, 10, 4)]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"centers": 2, "scale": 8.0, "lr": 1e-5},
        "revisit_code": {"centers": 2, "scale": 8.0, "lr": 1e-5},
        "thesis": {"centers": 2, "margin": 0.1, "lr": 1e-4},
        "thesis_tuned": {
            "centers": 2,
            "scale": 78.0,
            "temperature": 1 / 58,
            "margin": 0.4,
            "tau": 0.4,
            "lr": 5e-5,
        },
        "thesis_code": {"centers": 2, "margin": 0.01, "tau": 0.4, "lr": 1e-2},
    }

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        centers: int = 10,
        scale: float = 20.0,
        temperature: float = 0.1,
        margin: float = 0.01,
        tau: float = 0.2,
        lr: float | None = 1e-2,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        if centers < 1:
            raise ValueError(f"centers must be at least 1, got {centers}")
        if scale <= 0 or temperature <= 0:
            raise ValueError(
                "scale and temperature must be positive, "
                f"got scale={scale}, temperature={temperature}"
            )
        if tau < 0:
            raise ValueError(f"tau must not be negative, got {tau}")
        self.scale, self.temperature, self.margin, self.tau = scale, temperature, margin, tau
        self.centers = nn.Parameter(torch.empty(num_classes, centers, embedding_size))
        nn.init.kaiming_uniform_(self.centers, a=math.sqrt(5))

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        centers = self.centers.to(embeddings.dtype)  # [C, K, D]
        # classes last: sums over centres then run over long rows, much faster than over short ones
        columns = centers.transpose(0, 1).flatten(0, 1)  # [K * C, D]
        sim = scaled_cosine(embeddings, columns, 1 / self.temperature)  # [N, K * C]
        sim = sim.view(len(embeddings), -1, self.num_classes)  # [N, K, C]
        logits = _soft_maximum(sim, self.scale * self.temperature)  # [N, C]
        margin = F.one_hot(labels, self.num_classes) * (self.scale * self.margin)
        loss = F.cross_entropy(logits - margin, labels)
        return loss if self.tau == 0 else loss + self.tau * self._spread(unit(centers))

    def _spread(self, centers: Tensor) -> Tensor:
        num_classes, num_centers, _ = centers.shape
        if num_centers == 1:
            return centers.sum() * 0
        k, other = torch.triu_indices(num_centers, num_centers, 1, device=centers.device)
        gram = centers @ centers.transpose(1, 2)  # [C, K, K]
        dist = (2 + 1e-5 - 2 * gram[:, k, other]).sqrt()  # [C, K (K - 1) / 2]
        return dist.sum() / (num_classes * num_centers * (num_centers - 1))


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
