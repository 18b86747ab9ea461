"""Global orthogonal regularizer."""

from torch import Tensor

from unseen.core.contracts import Output
from unseen.core.geometry import cosine, masked_mean
from unseen.core.relevance import AnyLabels
from unseen.core.tuples import relations
from unseen.regularizers.base import Regularizer


class GlobalOrthogonalRegularizer(Regularizer):
    """Global orthogonal: embeddings of different classes behave like random directions (GOR).

    Formula:
        over the pairs of different classes in the batch, cosine similarities s, D dimensions:

            L = (mean s)^2 + [mean s^2 - 1/D]+

        Uniform directions have mean s = 0 and mean s^2 = 1/D, so they cost nothing.
        Means are over such pairs only: averaging masked zeros as well would make the loss depend
        on how many classes the batch holds.

    Paper:
        X. Zhang et al., Learning Spread-out Local Feature Descriptors, ICCV 2017,
        https://arxiv.org/abs/1708.06320

    Weight:
        1 is usual; 0.1 to 10 worth trying.

    Use:
        any loss and sampler. A batch of one class has no such pair and costs 0.

    Example:
        >>> import torch
        >>> from unseen.core.contracts import Output
        >>> from unseen.regularizers import GlobalOrthogonalRegularizer
        >>> output = Output(embeddings=torch.eye(4), pooled=torch.eye(4))
        >>> round(GlobalOrthogonalRegularizer()(output, torch.tensor([0, 0, 1, 1])).item(), 3)
        0.0
    """

    def on_output(self, output: Output, labels: AnyLabels) -> Tensor:
        sim = cosine(output.embeddings)  # [N, N]
        _, different = relations(labels)
        first = masked_mean(sim, different)
        second = masked_mean(sim.square(), different)
        self.note(mean_similarity=first, mean_square=second)
        return first.square() + (second - 1 / output.embeddings.shape[1]).clamp(min=0)
