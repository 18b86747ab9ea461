"""Entropy regularizer."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.core.geometry import unit_squared_distance
from unseen.core.relevance import AnyLabels
from unseen.losses.base import check_choice
from unseen.regularizers.base import Regularizer

SMALLEST = 1e-8  # of a squared distance whose logarithm is taken


class EntropyRegularizer(Regularizer):
    """Entropy: keeps the question whether two items match as open as the loss allows.

    Formula:
        form="pairs": over all pairs i < j, squared distances d of unit embeddings,

            p = sigmoid(eta - d),    L = mean of p log p + (1 - p) log(1 - p)

        which is -log 2, its least, when every d is eta: same classes spread, others come nearer.
        form="nearest": L = -mean over items of log(distance to the nearest other item), the
        Kozachenko-Leonenko estimate of the entropy of the embeddings, up to constants.

    Paper:
        compared with, but not written down, in Y. Li et al., Deep Metric Learning with Density
        Adaptivity, IEEE TMM 2020, https://arxiv.org/abs/1909.03909. The formula is our reading of
        the work it cites: G. Niu et al., Information-theoretic Semi-supervised Metric Learning via
        Entropy Regularization, ICML 2012, https://arxiv.org/abs/1206.4614

    Args:
        form: "pairs" or "nearest".
        eta: the squared distance that "pairs" draws everything to; 1, half the squared distance of
            orthogonal vectors.
        trained: learns eta.

    Weight:
        unknown: try 0.01 to 10. Items that coincide count as 1e-4 apart, without gradient.

    Use:
        any loss and sampler; results must say which form was used.

    Example:
        >>> import torch
        >>> from unseen.core.contracts import Output
        >>> from unseen.regularizers import EntropyRegularizer
        >>> output = Output(embeddings=torch.eye(4), pooled=torch.eye(4))
        >>> round(EntropyRegularizer()(output, torch.tensor([0, 0, 1, 1])).item(), 3)
        -0.582
    """

    def __init__(self, form: str = "pairs", eta: float = 1.0, trained: bool = False) -> None:
        super().__init__()
        check_choice("form", form, ("pairs", "nearest"))
        if not 0 < eta < 4:
            raise ValueError(f"eta is a squared distance of unit vectors, 0 to 4, got {eta}")
        if trained and form != "pairs":
            raise ValueError("trained=True learns eta, which only form='pairs' has")
        self.form = form
        self.eta = nn.Parameter(torch.tensor(float(eta)), requires_grad=trained)

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        squared = unit_squared_distance(output.embeddings)  # [N, N]
        return self._pairs(squared) if self.form == "pairs" else self._nearest(squared)

    def _pairs(self, squared: Tensor) -> Tensor:
        number = len(squared)
        above = torch.ones_like(squared, dtype=torch.bool).triu(diagonal=1)
        open_by = self.eta - squared
        matching = open_by.sigmoid()
        entropy = matching * F.softplus(-open_by) + (1 - matching) * F.softplus(open_by)
        pairs = max(1, number * (number - 1) // 2)
        mean = entropy.masked_fill(~above, 0.0).sum() / pairs
        self.note(entropy=mean, eta=self.eta)
        return -mean

    def _nearest(self, squared: Tensor) -> Tensor:
        number = len(squared)
        if number < 2:
            return squared.sum() * 0.0
        itself = torch.eye(number, dtype=torch.bool, device=squared.device)
        nearest = squared.masked_fill(itself, math.inf).amin(dim=1).clamp(min=SMALLEST)  # [N]
        self.note(nearest=nearest.sqrt().mean())
        return -0.5 * nearest.log().mean()
