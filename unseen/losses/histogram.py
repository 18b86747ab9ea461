"""Histogram: the chance that a random negative pair is more similar than a random positive pair.

Paper    E. Ustinova, V. Lempitsky, Learning Deep Embeddings with Histogram Loss, NIPS 2016,
         https://arxiv.org/abs/1611.00822
Formula  nodes t(r) from -1 to 1 with spacing D; each pair's cosine is shared between its two
         nearest nodes in proportion to closeness, giving histograms h+ and h-, each of sum 1:

             L = sum over r of h-(r) * (h+(1) + ... + h+(r))

         0 without positive or without negative pairs. (Roth et al. describe it the other way
         around, as the chance that a positive pair is more similar; their formula is this one.)
Values   65 nodes (Roth et al. on CUB and Cars, 11 on SOP; their code is defective at 11).
Use      samples_per_class sampler, large batches, no miner.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.geometry import cosine
from unseen.losses.base import Comparison, Loss, Side


class Histogram(Loss):
    """nodes: how many values of the cosine the histograms have, both ends included."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"revisit": {}, "revisit_code": {}}

    def __init__(self, nodes: int = 65) -> None:
        super().__init__()
        if nodes < 2:
            raise ValueError(f"nodes must be at least 2, the ends of the histogram; got {nodes}")
        self.nodes = nodes

    def price(self, batch: Comparison) -> Tensor:
        positive, negative = (self._histogram(side) for side in batch.sides(cosine))
        return torch.dot(negative, positive.cumsum(dim=0))

    def _histogram(self, side: Side) -> Tensor:  # [nodes]
        counts = side.counts.flatten()
        place = (side.values.flatten().clamp(-1, 1) + 1) * ((self.nodes - 1) / 2)
        # the node below; a NaN stays in range here and spoils its share, hence the loss
        node = place.long().clamp(0, self.nodes - 2)
        above = (place - node) * counts  # the share of the node above
        empty = place.new_zeros(self.nodes)
        total = empty.index_add(0, node + 1, above).index_add(0, node, counts - above)
        return total / counts.sum().clamp(min=1)
