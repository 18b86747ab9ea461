"""Penalty on the length of embeddings."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Output
from unseen.core.geometry import safe_sqrt
from unseen.core.relevance import AnyLabels
from unseen.losses.base import check_choice
from unseen.regularizers.base import Regularizer


class EmbeddingNormRegularizer(Regularizer):
    """Embedding norm: keeps the raw embeddings of un-normalised losses from growing.

    Formula:
        the mean of |x|^2 over the batch's raw embeddings, or with power="length" of |x|.

    Paper:
        K. Sohn, Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NeurIPS 2016

    Args:
        power: "squared" (Roth et al. print |x|^2) or "length" (their code takes |x|).

    Weight:
        0.005 with n_pair, angular and generalised lifted (Roth et al.), 0.02 with n_pair (Psomas;
        the original code multiplies it by 0.25, which gives 0.005 again). Those losses can also
        hold the penalty themselves: use one of the two.

    Use:
        losses on raw embeddings. With a loss on unit vectors it acts on nothing but the length,
        which then changes the effective learning rate.

    Example:
        >>> import torch
        >>> from unseen.core.contracts import Output
        >>> from unseen.regularizers import EmbeddingNormRegularizer
        >>> output = Output(embeddings=torch.eye(4), pooled=torch.eye(4))
        >>> round(EmbeddingNormRegularizer()(output, torch.tensor([0, 0, 1, 1])).item(), 3)
        1.0
    """

    usual_weight = 0.005
    preset_weights: ClassVar[dict[str, float]] = {"thesis": 0.02}
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {},
        "revisit_code": {"power": "length"},
        "thesis": {},
    }

    def __init__(self, power: str = "squared") -> None:
        super().__init__()
        check_choice("power", power, ("squared", "length"))
        self.power = power

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        squares = output.embeddings.square().sum(dim=1)  # [N]
        lengths = safe_sqrt(squares)
        number = max(1, len(lengths))
        self.note(mean=lengths.sum() / number, largest=F.pad(lengths, (0, 1)).max())
        return (squares if self.power == "squared" else lengths).sum() / number
