"""Signal-to-noise ratio loss."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.comparison import Comparison
from unseen.core.derivatives import Back, chain
from unseen.core.geometry import OWN, squared_distance, to_unit, unit
from unseen.losses.base import Loss, check_not_negative


class SnrLoss(Loss):
    """Signal-to-noise ratio: a triplet loss on the difference's variance over the anchor's own.

    Formula:
        variances over the D coordinates, their mean removed:

            snr(a, v) = Var(x(a) - x(v)) / Var(x(a))
            L = mean over triplets above 0 of [snr(a,p) - snr(a,n) + margin]+
              + weight * mean over triplets of |sum of the coordinates of x(a)|

        x are unit embeddings, raw ones with `normalize=False`. The ratio is not symmetric.
        (Equation 15 of Roth et al. lost the squares and the removal of the mean.)

    Paper:
        T. Yuan et al., Signal-to-Noise Ratio: A Robust Distance Metric for Deep Metric Learning,
        CVPR 2019, https://arxiv.org/abs/1904.02616

    Args:
        margin: by how much the negative's ratio is to be larger; 0.2 (Roth et al.).
        weight: of the zero-mean term; 0.005 (Roth et al.; 0 in their code with the distance miner).
        normalize: unit embeddings; False takes raw ones.

    Use:
        m_per_class sampler; distance_weighted miner, with or without the switch.

    Example:
        >>> import torch
        >>> from unseen.losses import SnrLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = SnrLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        12.206
    """

    rotation_invariant = False  # the mean of the coordinates singles out one direction
    usual_miner = "distance_weighted"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"weight": 0.0},
    }

    def __init__(self, margin: float = 0.2, weight: float = 0.005, normalize: bool = True) -> None:
        super().__init__()
        check_not_negative(margin=margin, weight=weight)
        self.margin, self.weight, self.normalize = margin, weight, normalize
        self.scale_invariant = normalize
        self.compares_raw = not normalize

    def on_comparison(self, batch: Comparison) -> Tensor:
        own = chain(to_unit, _own_ratios) if self.normalize else _own_ratios
        loss = batch.triplet_mean(self._ratios, self.margin, of_active=True, own=own)
        if self.weight == 0:
            return loss
        rows = unit(batch.embeddings) if self.normalize else batch.embeddings
        triplets = self._triplets_of(batch)
        off_center = (rows.sum(dim=1).abs() * triplets).sum()
        return loss + self.weight * off_center / triplets.sum().clamp(min=1)

    def _triplets_of(self, batch: Comparison) -> Tensor:  # [N]
        """How many triplets each anchor has."""
        if batch.tuples is None:
            positive, negative = batch.pair_counts()
            return positive.sum(dim=1) * negative.sum(dim=1)
        anchor = batch.triplets().anchor
        return torch.bincount(anchor, minlength=len(batch.labels)).to(batch.embeddings.dtype)

    def _ratios(self, x: Tensor, y: Tensor | None = None, paired: bool = False) -> Tensor:
        """Squared distances of centred rows over the row's own squared length."""
        if self.normalize:
            x, y = unit(x), None if y is None else unit(y)
        x = x - x.mean(dim=1, keepdim=True)
        y = None if y is None else y - y.mean(dim=1, keepdim=True)
        own = _variances(x)
        return squared_distance(x, y, paired) / (own[:, 0] if paired else own)


def _variances(centered: Tensor) -> Tensor:  # [N, 1]
    """Times D. A constant row has none: the guard keeps its ratios finite."""
    return centered.square().sum(dim=1, keepdim=True).clamp(min=1e-12 * centered.shape[1])


def _own_ratios(x: Tensor) -> tuple[Tensor, Back]:
    """The ratios of rows among each other, and their gradient."""
    rows = x - x.mean(dim=1, keepdim=True)
    own = _variances(rows)  # [N, 1]
    squares, back_to_rows = OWN[squared_distance](rows)
    ratios = squares.div_(own)

    def back(grad: Tensor) -> tuple[Tensor]:
        by_square = grad / own
        (on_rows,) = back_to_rows(by_square)
        on_own = (by_square * ratios).sum(dim=1, keepdim=True)
        on_own.masked_fill_(own <= 1e-12 * x.shape[1], 0.0)  # the guard's
        on_rows.addcmul_(rows, on_own, value=-2)
        return (on_rows.sub_(on_rows.mean(dim=1, keepdim=True)),)

    return ratios, back
