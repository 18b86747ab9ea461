"""ROADMAP loss."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.derivatives import Back, differentiable
from unseen.core.geometry import masked_mean
from unseen.core.tuples import complete
from unseen.losses.base import MatrixLoss, check_not_negative, check_positive
from unseen.losses.smooth_ap import blocks, mean_per_query


class RoadmapLoss(MatrixLoss):
    """ROADMAP: an upper bound of one minus average precision, and calibrated similarities.

    Formula:
        for a query i, positives P(i), negatives N(i), cosine similarities S, sig(z) = 1 / (1 +
        exp(-z)), a step that no negative can pass unpunished

            H(t) = sig(t / temperature)                     t <= 0
                   sig(t / temperature) + 1/2               0 < t <= delta
                   H(delta) + rho (t - delta)               t > delta

            r(p)  = 1 + number of other positives q with S[i,q] >= S[i,p]      (no gradient)
            AP(i) = mean over p of r(p) / (r(p) + sum over n in N(i) of H(S[i,n] - S[i,p]))

            L = 1 - mean of AP over queries that have a positive and a negative
              + calibration * ( mean over positive pairs of [pos_margin - S]+
                              + mean over negative pairs of [S - neg_margin]+ )

        each of the last two over the pairs that cost something; the query is in no sum. H is
        never below the true step, so the first term bounds 1 - AP from above (but for ties); the
        second makes similarities of different batches comparable.

    Paper:
        E. Ramzi et al., Robust and Decomposable Average Precision for Image Retrieval, NeurIPS
        2021, https://arxiv.org/abs/2110.01445

    Args:
        temperature: of the step; 0.01 (authors' code, as all below).
        rho: slope of the step beyond delta; 100.
        delta: where the slope begins; 0.05. The code lets H go on from 1.44 at delta, 0.05 below
            where it stands; here it has no such fall.
        pos_margin: the similarity that positives are to reach; 0.9.
        neg_margin: the similarity that negatives are not to reach; 0.6.
        calibration: the weight of both; 1, as the first term has (the paper writes the weights as 1
            - lambda and lambda with lambda 1/2, which is half of this).

    Use:
        m_per_class sampler with at least 4 per class, large batches.

    Example:
        >>> import torch
        >>> from unseen.losses import RoadmapLoss
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> loss = RoadmapLoss()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 3)
        0.923
    """

    one_sided = True
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"roadmap": {}, "sup_ap": {"calibration": 0.0}}

    def __init__(
        self,
        temperature: float = 0.01,
        rho: float = 100.0,
        delta: float = 0.05,
        pos_margin: float = 0.9,
        neg_margin: float = 0.6,
        calibration: float = 1.0,
    ) -> None:
        super().__init__()
        check_positive(temperature=temperature, rho=rho)
        check_not_negative(delta=delta, calibration=calibration)
        self.temperature, self.rho, self.delta = temperature, rho, delta
        self.pos_margin, self.neg_margin, self.calibration = pos_margin, neg_margin, calibration
        self.one_sided = calibration > 0

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        query, positive = pos.nonzero(as_tuple=True)
        among_positives = self._ranks(sim.detach(), pos, query, positive)  # [P]
        above = self._negatives_above(sim, neg, query, positive)  # [P]
        precision = mean_per_query(among_positives / (among_positives + above), query, pos)  # [N]
        loss = masked_mean(1 - precision, where=complete(pos, neg))
        near, far = (self.pos_margin - sim).clamp(min=0), (sim - self.neg_margin).clamp(min=0)
        active = masked_mean(near, pos & (near > 0)) + masked_mean(far, neg & (far > 0))
        return loss + self.calibration * active

    def _ranks(self, sim: Tensor, pos: Tensor, query: Tensor, positive: Tensor) -> Tensor:  # [P]
        """Of each positive among the query's positives, itself counted."""
        result = sim.new_empty(len(query))
        for block, i, p in blocks(query, positive, sim.shape[1]):
            result[block] = ((sim[i] >= sim[i, p][:, None]) & pos[i]).sum(dim=1).to(sim.dtype)
        return result

    def _negatives_above(
        self, sim: Tensor, neg: Tensor, query: Tensor, positive: Tensor
    ) -> Tensor:  # [P]
        """The sum of H over the query's negatives, for each positive."""

        def formula(sim: Tensor) -> Tensor:  # in memory of [P, M]
            height, _ = self._step(sim[query] - sim[query, positive][:, None])
            return (height * neg[query]).sum(dim=1)

        def written(sim: Tensor) -> tuple[Tensor, Back]:  # nothing of size P x M is kept
            result = sim.new_empty(len(query))
            for block, i, p in blocks(query, positive, sim.shape[1]):
                height, _ = self._step(sim[i] - sim[i, p][:, None])
                result[block] = (height * neg[i]).sum(dim=1)

            def back(grad: Tensor) -> tuple[Tensor]:  # [P]
                on_sim = torch.zeros_like(sim)
                for block, i, p in blocks(query, positive, sim.shape[1]):
                    _, slope = self._step(sim[i] - sim[i, p][:, None])
                    slope = slope * neg[i] * grad[block, None]
                    on_sim.index_add_(0, i, slope)
                    on_sim[i, p] -= slope.sum(dim=1)
                return (on_sim,)

            return result, back

        above: Tensor = differentiable(formula, written, sim)
        return above

    def _step(self, gap: Tensor) -> tuple[Tensor, Tensor]:
        """H and its slope."""
        soft = torch.sigmoid(gap / self.temperature)
        edge = torch.sigmoid(gap.new_tensor(self.delta / self.temperature)) + 0.5
        is_far = gap > self.delta
        height = torch.where(
            is_far, edge + self.rho * (gap - self.delta), soft + 0.5 * (gap > 0).to(gap.dtype)
        )
        slope = soft * (1 - soft) / self.temperature
        return height, torch.where(is_far, torch.full_like(slope, self.rho), slope)
