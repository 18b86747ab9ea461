"""Normalised softmax loss."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Shards
from unseen.core.geometry import scaled_cosine
from unseen.losses.class_centers.base import CenterLoss
from unseen.losses.class_centers.sampling import Drawn


class NormalizedSoftmaxLoss(CenterLoss):
    """Normalised softmax: classification by the cosine to one learned direction per class.

    Formula:
        unit embeddings x, unit class vectors w, y the class of i:

            L = mean over i of -log( exp(x[i].w[y] / temperature)
                                     / sum over c of exp(x[i].w[c] / temperature) )

        `layer_norm` standardises each embedding over its coordinates first, as the paper does.
        (Equation 19 of Roth et al. leaves c = y out of the sum, and sums over the batch.)

    Paper:
        A. Zhai, H.-Y. Wu, Classification is a Strong Baseline for Deep Metric Learning, BMVC 2019,
        https://arxiv.org/abs/1811.12649

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        temperature: divides the cosines; 0.05 (paper).
        layer_norm: standardise each embedding over its coordinates first, as the paper does.
        sample_rate: the share of the classes that a step compares with (losses/class_centers);
            None: all.
        lr: of the class vectors; 2e-3 (Roth et al. 2020 on Online Products; on CUB and Cars 1e-5,
            in 150 epochs; measured in docs/choosing.md). None: the run's.
        seed: of the drawing of classes by `sample_rate`.
        shards: processes that share the classes; a run fills it in.

    Use:
        any sampler, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import NormalizedSoftmaxLoss
        >>> loss = NormalizedSoftmaxLoss(num_classes=2, embedding_size=4)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).backward()
        >>> [tuple(each.shape) for each in loss.parameters()]
        [(2, 4)]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"temperature": 0.05, "lr": 1e-5},
        "revisit_code": {"temperature": 0.05, "lr": 1e-5},
    }

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        temperature: float = 0.05,
        layer_norm: bool = False,
        sample_rate: float | None = None,
        lr: float | None = 2e-3,
        seed: int = 0,
        shards: Shards | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr, sample_rate, seed, shards)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature, self.layer_norm = temperature, layer_norm
        # removing the mean over coordinates depends on the axes
        self.rotation_invariant = not layer_norm
        bound = embedding_size**-0.5
        self.weight = self.centers(lambda rows: rows.uniform_(-bound, bound))

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        if self.layer_norm:
            embeddings = F.layer_norm(embeddings, embeddings.shape[1:])
        scale = 1 / self.temperature
        if self.sampling is not None:
            drawn: Drawn = self.sampling(self.weight, embeddings, labels)
            return drawn.cross_entropy(scaled_cosine(drawn.embeddings, drawn.centers, scale))
        logits = scaled_cosine(embeddings, self.weight.to(embeddings.dtype), scale)  # [N, C]
        return F.cross_entropy(logits, labels)
