"""Normalised softmax: classification by the cosine to one learned direction per class.

Paper    A. Zhai, H.-Y. Wu, Classification is a Strong Baseline for Deep Metric Learning, BMVC 2019,
         https://arxiv.org/abs/1811.12649
Formula  unit embeddings x, unit class vectors w, y the class of i:

             L = mean over i of -log( exp(x[i].w[y] / temperature)
                                      / sum over c of exp(x[i].w[c] / temperature) )

         `layer_norm` standardises each embedding over its coordinates first, as the paper does.
         (Equation 19 of Roth et al. leaves c = y out of the sum, and sums over the batch.)
Values   temperature 0.05 (paper). Class vectors at 2e-3 (Roth et al. 2020 on Online Products; on
         CUB and Cars 1e-5, in 150 epochs; measured in docs/choosing.md).
Classes  `sample_rate` compares with a share of them in each step (losses/class_centres).
Use      any sampler, no miner.
"""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from unseen.contracts import Shards
from unseen.geometry import scaled_cosine
from unseen.losses.class_centres.base import CentreLoss
from unseen.losses.class_centres.sampling import Drawn


class NormalizedSoftmax(CentreLoss):
    """temperature: divides the cosines. layer_norm: standardise embeddings first. sample_rate: the
    share of the classes that a step compares with, none for all at once."""

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
        self.weight = self.centres(lambda rows: rows.uniform_(-bound, bound))

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        if self.layer_norm:
            embeddings = F.layer_norm(embeddings, embeddings.shape[1:])
        scale = 1 / self.temperature
        if self.sampling is not None:
            drawn: Drawn = self.sampling(self.weight, embeddings, labels)
            return drawn.cross_entropy(scaled_cosine(drawn.embeddings, drawn.centres, scale))
        logits = scaled_cosine(embeddings, self.weight.to(embeddings.dtype), scale)  # [N, C]
        return F.cross_entropy(logits, labels)
