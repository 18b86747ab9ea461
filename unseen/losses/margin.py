"""Margin loss."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.core.comparison import Comparison, Side
from unseen.core.geometry import unit_distance
from unseen.core.hinges import hinge_sum
from unseen.core.relevance import AnyLabels
from unseen.core.tuples import Triplets
from unseen.losses.base import Loss, check_choice, check_not_negative, class_labels, wrong_labels


class MarginLoss(Loss):
    """Margin: positives inside, negatives outside a learned boundary on the distance.

    Formula:
        over triplets (a, p, n), Euclidean distances d of unit embeddings, boundary b of a's class:

            L = ( sum of [d(a,p) - b + margin]+ + [b - d(a,n) + margin]+ ) / number of active terms

        with `normalizer="active_triplets"` the divisor is the number of triplets with an active
        term, which is what the code of Roth et al. computes. (Their equation 10 lost the hinge and
        takes pairs of different classes only; equation 2.23 of Psomas has an indicator of 1 and 0
        where it is +1 and -1, and a cosine that no boundary of 1.2 could bound.)

    Paper:
        C.-Y. Wu et al., Sampling Matters in Deep Embedding Learning, ICCV 2017,
        https://arxiv.org/abs/1706.07567

    Args:
        num_classes: number of training classes; a run fills it in.
        margin: on both sides of the boundary; 0.2 (paper), 0.5 (Psomas' thesis).
        beta: where the boundary starts; 1.2 (paper), Roth et al. also start at 0.6.
        boundary: "per_class" (Roth et al.), "shared" (one learned scalar) or "fixed" (the code of
            Psomas' thesis).
        normalizer: "active_terms", or "active_triplets" as the code of Roth et al. computes.
        lr: of the boundaries; 5e-4 (Roth et al.), 5e-5 (Psomas' thesis). None: the run's.

    Use:
        m_per_class sampler; distance_weighted miner. Roth also start the boundary at 0.6.

    Example:
        >>> import torch
        >>> from unseen.losses import MarginLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = MarginLoss(num_classes=2)(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.709
    """

    usual_miner = "distance_weighted"
    needs_classes = True
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"lr": 5e-4},
        "revisit_code": {"lr": 5e-4, "normalizer": "active_triplets"},
        "thesis": {"margin": 0.5, "boundary": "shared", "lr": 5e-5},
        "thesis_code": {"boundary": "fixed"},
    }

    def __init__(
        self,
        num_classes: int,
        margin: float = 0.2,
        beta: float = 1.2,
        boundary: str = "per_class",
        normalizer: str = "active_terms",
        lr: float | None = 5e-4,
    ) -> None:
        super().__init__()
        check_choice("boundary", boundary, ("per_class", "shared", "fixed"))
        check_choice("normalizer", normalizer, ("active_terms", "active_triplets"))
        if margin < 0 or not 0 < beta < 2:
            raise ValueError(
                f"margin must be >= 0 and beta within (0, 2), the distances of unit vectors; "
                f"got margin={margin}, beta={beta}"
            )
        check_not_negative(lr=lr or 0.0)
        self.margin, self.normalizer, self.own_lr = margin, normalizer, lr
        self.is_per_class = self.needs_classes = boundary == "per_class"
        start = torch.full((num_classes if self.is_per_class else 1,), float(beta))
        self.beta = nn.Parameter(start, requires_grad=boundary != "fixed")

    def on_comparison(self, batch: Comparison) -> Tensor:
        positive, negative = batch.sides(unit_distance, of_triplets=True)
        beta = self._boundaries(batch.labels).to(positive.values.dtype)  # [N]
        inner, outer = beta[positive.anchor] - self.margin, beta[negative.anchor] + self.margin
        pull, active_pull = hinge_sum(positive.values, inner, positive.counts)
        push, active_push = hinge_sum(negative.values, outer, negative.counts, below=True)
        if self.normalizer == "active_terms":
            active = active_pull + active_push
        elif isinstance(batch.tuples, Triplets):
            active = ((positive.values > inner) | (negative.values < outer)).sum()
        else:
            idle_pull, idle_push = positive.values <= inner, negative.values >= outer
            active = count_active(positive, negative, idle_pull, idle_push, len(batch.labels))
        return (pull + push) / active.clamp(min=1)

    def _boundaries(self, labels: AnyLabels) -> Tensor:  # [N]
        if not self.is_per_class:
            return self.beta.expand(len(labels))
        labels = class_labels(labels, self)
        try:  # label -1 is no class either; a GPU asserts by itself
            return self.beta.index_select(0, labels)
        except IndexError:
            raise wrong_labels(labels, len(self.beta)) from None


def count_active(
    positive: Side, negative: Side, idle_pull: Tensor, idle_push: Tensor, num_anchors: int
) -> Tensor:
    """How many of the triplets that pairs make have an active term on either side: all but those of
    an idle positive and an idle negative."""
    triplets = positive.per_anchor(num_anchors)  # [N], positives times negatives
    idle_positive = positive._replace(counts=positive.counts * idle_pull).per_anchor(num_anchors)
    idle_negative = negative._replace(counts=negative.counts * idle_push).per_anchor(num_anchors)
    # each count holds the number of the other side once too often
    return (triplets - idle_positive * idle_negative / triplets.clamp(min=1)).sum()
