"""Random triplets."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from unseen.core.tuples import Triplets
from unseen.miners.base import Members, TripletMiner, draw_per_row, valid_anchors


class RandomMiner(TripletMiner):
    """Random: triplets drawn uniformly, the baseline every other miner is measured against.

    Formula:
        as many distinct triplets (a, p, n) as the batch has items, uniform among all valid ones
        (all of them if there are fewer); anchors may repeat. With `per_anchor`, that many
        independent draws for each anchor, positive and negative uniform.

    Paper:
        K. Roth et al., Revisiting Training Strategies and Generalization Performance in Deep
        Metric Learning, ICML 2020, https://arxiv.org/abs/2002.08473

    Args:
        per_anchor: that many triplets for each anchor (1 in the text of Roth et al.); None: among
            all triplets of the batch (their code).
        switch: probability that a triplet becomes (a, a, j), j another item of a's class (the rho
            switch of Roth et al. 2020).
        seed: of the draws.

    Use:
        triplet, margin and other losses on triplets, as the control.

    Example:
        >>> import torch
        >>> from unseen.miners import RandomMiner
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> triplets = RandomMiner()(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> len(triplets.anchor)
        4
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "revisit": {"per_anchor": 1},
        "revisit_code": {},
    }

    def __init__(self, per_anchor: int | None = None, switch: float = 0.0, seed: int = 0) -> None:
        super().__init__(switch, seed)
        if per_anchor is not None and per_anchor < 1:
            raise ValueError(f"per_anchor must be at least 1 or None, got {per_anchor}")
        self.per_anchor = per_anchor

    def triplets(
        self, embeddings: Tensor, references: Tensor | None, pos: Tensor, neg: Tensor
    ) -> Triplets:
        if self.per_anchor is not None:
            valid = valid_anchors(pos, neg)
            positive = draw_per_row(pos, self.generator, draws=self.per_anchor)[valid]
            negative = draw_per_row(neg, self.generator, draws=self.per_anchor)[valid]
            anchor = valid.repeat_interleave(self.per_anchor)
            return Triplets(anchor, positive.flatten(), negative.flatten())
        positives, negatives = Members(pos), Members(neg)
        num_triplets = positives.count * negatives.count  # [N]
        last = num_triplets.cumsum(0)
        chosen = _distinct(int(num_triplets.sum()), len(embeddings), self.generator)
        chosen = chosen.to(last.device)
        # a triplet's number says its anchor, its positive's place and its negative's place
        anchor = torch.searchsorted(last, chosen, right=True)
        place = chosen - (last - num_triplets)[anchor]
        num_negatives = negatives.count[anchor]
        return Triplets(
            anchor,
            positives.at(anchor, place // num_negatives),
            negatives.at(anchor, place % num_negatives),
        )


def _distinct(total: int, count: int, generator: torch.Generator) -> Tensor:  # [min(count, total)]
    """Different numbers below `total`, every set of them equally likely, in random order."""
    if total <= 8 * count:
        return torch.randperm(total, generator=generator)[:count]
    while True:  # leaves in the first round but for a chance of practically 0
        drawn = torch.randint(total, (2 * count,), generator=generator).unique()
        if len(drawn) >= count:
            return drawn[torch.randperm(len(drawn), generator=generator)[:count]]
