"""Global orthogonal: embeddings of different classes behave like random directions (GOR).

Paper    X. Zhang et al., Learning Spread-out Local Feature Descriptors, ICCV 2017,
         https://arxiv.org/abs/1708.06320
Formula  over the pairs of different classes in the batch, cosine similarities s, D dimensions:

             L = (mean s)^2 + [mean s^2 - 1/D]+

         Uniform directions have mean s = 0 and mean s^2 = 1/D, so they cost nothing.
         Means are over such pairs only: averaging masked zeros as well would make the price depend
         on how many classes the batch holds.
Values   weight 1 is usual; 0.1 to 10 worth trying.
Use      any loss and sampler. A batch of one class has no such pair and costs 0.
"""

from torch import Tensor

from unseen.contracts import Output
from unseen.geometry import cosine, masked_mean
from unseen.regularizers.base import Regularizer
from unseen.relevance import AnyLabels
from unseen.tuples import relations


class GlobalOrthogonal(Regularizer):
    """It has no parameters."""

    def price(self, output: Output, labels: AnyLabels) -> Tensor:
        sim = cosine(output.embeddings)  # [N, N]
        _, different = relations(labels)
        first = masked_mean(sim, different)
        second = masked_mean(sim.square(), different)
        self.note(mean_similarity=first, mean_square=second)
        return first.square() + (second - 1 / output.embeddings.shape[1]).clamp(min=0)
