"""Softmax classification loss."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.geometry import unit
from unseen.losses.base import LabelLoss


class SoftmaxLoss(LabelLoss):
    """Softmax: classification of the embedding by a linear layer, the baseline of proxy losses.

    Formula:
        raw embeddings x, class vectors w, y the class of i:

            L = mean over i of -log( exp(x[i].w[y] + b[y]) / sum over c of exp(x[i].w[c] + b[c]) )

    Paper:
        N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
        Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310

    Args:
        num_classes: number of training classes; a run fills it in.
        embedding_size: dimensions of the embeddings; a run fills it in.
        bias: one learned offset per class; none in Psomas' thesis and in the code of Vo and Hays.
        normalize_input: unit embeddings, as in the code of Vo and Hays.
        lr: of the class vectors, which learn and decay as the network; None: the run's.

    Use:
        any sampler, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import SoftmaxLoss
        >>> loss = SoftmaxLoss(num_classes=2, embedding_size=4)
        >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).backward()
        >>> [tuple(each.shape) for each in loss.parameters()]
        [(2, 4)]
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "thesis": {},
        "vo_hays": {"normalize_input": True},
    }

    own_weight_decay = None  # a layer like the network's

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        bias: bool = False,
        normalize_input: bool = False,
        lr: float | None = None,
    ) -> None:
        super().__init__(num_classes, embedding_size, lr)
        self.normalize_input = self.scale_invariant = normalize_input
        bound = embedding_size**-0.5  # the start of torch's linear layers
        self.weight = nn.Parameter(torch.empty(num_classes, embedding_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_classes).uniform_(-bound, bound)) if bias else None

    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        if self.normalize_input:
            embeddings = unit(embeddings)
        bias = None if self.bias is None else self.bias.to(embeddings.dtype)
        logits = F.linear(embeddings, self.weight.to(embeddings.dtype), bias)  # [N, C]
        return F.cross_entropy(logits, labels)
