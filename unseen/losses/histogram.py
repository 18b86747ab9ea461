"""Histogram loss."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.comparison import Comparison, Side
from unseen.core.geometry import cosine
from unseen.losses.base import Loss


class HistogramLoss(Loss):
    """Histogram: the chance that a random negative pair is more similar than a positive one.

    Formula:
        nodes t(r) from -1 to 1 with spacing D; each pair's cosine is shared between its two
        nearest nodes in proportion to closeness, giving histograms h+ and h-, each of sum 1:

            L = sum over r of h-(r) * (h+(1) + ... + h+(r))

        0 without positive or without negative pairs. (Roth et al. describe it the other way
        around, as the chance that a positive pair is more similar; their formula is this one.)

    Paper:
        E. Ustinova, V. Lempitsky, Learning Deep Embeddings with Histogram Loss, NIPS 2016,
        https://arxiv.org/abs/1611.00822

    Args:
        nodes: how many values of the cosine the histograms have, both ends included; 65 (Roth et
            al. on CUB and Cars; 11 on SOP, where their code is defective).

    Use:
        m_per_class sampler, large batches, no miner.

    Example:
        >>> import torch
        >>> from unseen.losses import HistogramLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = HistogramLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.25
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"revisit": {}, "revisit_code": {}}

    def __init__(self, nodes: int = 65) -> None:
        super().__init__()
        if nodes < 2:
            raise ValueError(f"nodes must be at least 2, the ends of the histogram; got {nodes}")
        self.nodes = nodes

    def on_comparison(self, batch: Comparison) -> Tensor:
        if batch.tuples is None:
            return batch.matrix_loss(cosine, self._on_matrix, self._slope)
        return self._on_sides(*batch.sides(cosine))

    def _on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        row = torch.arange(len(sim), device=sim.device)[:, None]
        return self._on_sides(*(Side(sim, mask.to(sim.dtype), row) for mask in (pos, neg)))

    def _on_sides(self, positive: Side, negative: Side) -> Tensor:
        below = self._histogram(positive).cumsum(dim=0)
        return torch.dot(self._histogram(negative), below)

    def _histogram(self, side: Side) -> Tensor:  # [nodes]
        counts = side.counts.flatten()
        place = (side.values.flatten().clamp(-1, 1) + 1) * ((self.nodes - 1) / 2)
        # the node below; a NaN stays in range here and spoils its share, hence the loss
        node = place.long().clamp(0, self.nodes - 2)
        above = (place - node) * counts  # the share of the node above
        empty = place.new_zeros(self.nodes)
        total = empty.index_add(0, node + 1, above).index_add(0, node, counts - above)
        return total / counts.sum().clamp(min=1)

    def _slope(self, sim: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and its gradient by the similarities. An item's pair is of one kind, so both
        histograms are one list: the positive pairs' first."""
        nodes, half = self.nodes, (self.nodes - 1) / 2
        place = sim.clamp(-1, 1).mul_(half).add_(half)
        lower = place.floor().clamp_(0, nodes - 2)
        counts = pos + neg
        above = place.sub_(lower).mul_(counts)  # the share of the node above
        # a NaN stays in range here and spoils its share, hence the loss
        node = lower.add_(neg, alpha=nodes).long().clamp_(0, 2 * nodes - 2).flatten()
        both = sim.new_zeros(2 * nodes).index_add_(0, node, (counts - above).flatten())
        both[1:].index_add_(0, node, above.flatten())
        num_positive, num_negative = pos.sum().clamp_(min=1), neg.sum().clamp_(min=1)
        positive, negative = both[:nodes].div_(num_positive), both[nodes:].div_(num_negative)
        value = torch.dot(negative, positive.cumsum(dim=0))
        # one step to the right: a positive pair passes the negatives of its node, and so on
        steps = torch.cat([negative / -num_positive, positive.roll(-1) / num_negative]).mul_(half)
        slope = steps.index_select(0, node).view_as(sim).mul_(counts)
        return value, slope
