"""Divergence of the heads of an ensemble."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.contracts import Output
from unseen.core.geometry import unit
from unseen.core.relevance import AnyLabels
from unseen.losses.base import check_choice
from unseen.regularizers.base import Regularizer


class HeadDivergenceRegularizer(Regularizer):
    """Head divergence: the learners of an ensemble see the same image differently (ABE).

    Formula:
        cosine similarities s of the embeddings two different heads give,

            L = sum of [s - margin]+ / number of terms above 0

        over one image seen by two heads (scope="same"), or over every two images of the batch
        ("all", what HORDE's code computes).

    Paper:
        W. Kim et al., Attention-based Ensemble for Deep Metric Learning, ECCV 2018,
        https://arxiv.org/abs/1804.00382; in the form of P. Jacob et al., Metric Learning with
        HORDE, ICCV 2019, https://arxiv.org/abs/1908.02735

    Args:
        margin: the similarity up to which two heads agree for free; 0.5.
        scope: "same" image seen by two heads, or "all" pairs of images (HORDE's code).

    Weight:
        0.5, with 8 heads of 64 dimensions.

    Use:
        networks with heads (attention_ensemble). Equal heads cost 1 - margin, orthogonal ones 0.

    Example:
        >>> import torch
        >>> from unseen.core.contracts import Output
        >>> from unseen.regularizers import HeadDivergenceRegularizer
        >>> output = Output(torch.eye(2), pooled=torch.eye(2), heads=torch.ones(2, 2, 1))
        >>> HeadDivergenceRegularizer()(output, torch.tensor([0, 1])).item()
        0.5
    """

    usual_weight = 0.5
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"horde": {"scope": "all"}}

    def __init__(self, margin: float = 0.5, scope: str = "same") -> None:
        super().__init__()
        if not -1 <= margin < 1:
            raise ValueError(f"margin is a cosine similarity from -1 to below 1, got {margin}")
        check_choice("scope", scope, ("same", "all"))
        self.margin, self.scope = margin, scope

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        if output.heads is None:
            raise ValueError(
                "head_divergence needs a network with heads, and this one has none: "
                "use an attention ensemble, or leave the regularizer out"
            )
        heads = unit(output.heads)  # [N, H, d]
        same_head = torch.eye(heads.shape[1], dtype=torch.bool, device=heads.device)  # [H, H]
        if self.scope == "same":
            sim = heads @ heads.mT  # [N, H, H]
            other = ~same_head
        else:
            sim = torch.einsum("imd,jnd->imjn", heads, heads)  # [N, H, N, H]
            other = ~same_head[:, None]  # [H, 1, H]
        above = (sim - self.margin).clamp(min=0).masked_fill(~other, 0.0)
        active = (above.detach() > 0).sum()
        pairs = other.expand_as(sim).sum().clamp(min=1)
        similarity = sim.masked_fill(~other, 0.0).sum() / pairs
        self.note(mean_similarity=similarity, active_fraction=active / pairs)
        return above.sum() / active.clamp(min=1)
