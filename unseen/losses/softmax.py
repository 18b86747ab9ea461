"""Softmax: plain classification of the embedding by a linear layer, the baseline of proxy losses.

Paper    N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
         Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310
Formula  raw embeddings x, class vectors w, y the class of i:

             L = mean over i of -log( exp(x[i].w[y] + b[y]) / sum over c of exp(x[i].w[c] + b[c]) )

Values   no bias in Psomas' thesis and in the code of Vo and Hays, which also normalises the
         embeddings (`normalise_input`); class vectors learn and decay as the network.
Use      any sampler, no miner.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.geometry import unit
from unseen.losses.base import LabelLoss


class Softmax(LabelLoss):
    """bias: one learned offset per class. normalise_input: unit embeddings."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "thesis": {},
        "vo_hays": {"normalise_input": True},
    }

    own_weight_decay = None  # a layer like the network's

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        bias: bool = False,
        normalise_input: bool = False,
        lr: float | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        self.normalise_input = self.scale_invariant = normalise_input
        bound = embedding_size**-0.5  # the start of torch's linear layers
        self.weight = nn.Parameter(torch.empty(num_classes, embedding_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_classes).uniform_(-bound, bound)) if bias else None

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        if self.normalise_input:
            embeddings = unit(embeddings)
        bias = None if self.bias is None else self.bias.to(embeddings.dtype)
        logits = F.linear(embeddings, self.weight.to(embeddings.dtype), bias)  # [N, C]
        return F.cross_entropy(logits, labels)
