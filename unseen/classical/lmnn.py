"""LMNN: the nearest items of the own class stay nearer than any other by a margin.

Paper    K. Weinberger, L. Saul, Distance Metric Learning for Large Margin Nearest Neighbor
         Classification, JMLR 2009
Formula  T(i) the `neighbours` nearest items of i's class before learning, d squared distances in
         the learned space, mu the share of the push:

             (1 - mu) sum over i, j in T(i) of d(i, j)
               + mu sum over i, j in T(i), l of other classes of [1 + d(i, j) - d(i, l)]+

         By L-BFGS on G, from the identity.
Values   3 neighbours, mu 0.5.
Use      classes with more items than `neighbours`; smaller ones pull as many as they have. Each
         iteration costs N^2 D; the sum over triplets is exact and needs no list of impostors.
"""

import torch
from torch import Tensor

from unseen.classical.base import LinearMetric
from unseen.geometry import squared_distance
from unseen.hinges import hinge_triplets
from unseen.tuples import relations


class Lmnn(LinearMetric):
    """neighbours: how many of its class each item keeps near. push: the share mu."""

    def __init__(self, neighbours: int = 3, push: float = 0.5, max_iterations: int = 50) -> None:
        if neighbours < 1 or max_iterations < 1:
            raise ValueError(
                "neighbours and max_iterations must be at least 1, "
                f"got {neighbours} and {max_iterations}"
            )
        if not 0 < push < 1:
            raise ValueError(f"push must be between 0 and 1, got {push}")
        self.neighbours, self.push, self.max_iterations = neighbours, push, max_iterations

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        targets, others = self.targets(features, labels), relations(labels)[1]
        components = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
        components.requires_grad_()
        optimiser = torch.optim.LBFGS(
            [components], max_iter=self.max_iterations, line_search_fn="strong_wolfe"
        )

        def closure() -> float:
            optimiser.zero_grad()
            cost = self.cost(components, features, targets, others)
            cost.backward()
            return cost.item()

        optimiser.step(closure)
        return components.detach()

    def targets(self, features: Tensor, labels: Tensor) -> Tensor:  # bool [N, N]
        """The nearest items of each item's class."""
        same = relations(labels)[0]
        dist = squared_distance(features).masked_fill(~same, torch.inf)
        count = min(self.neighbours, len(features) - 1)
        nearest = torch.zeros_like(same).scatter_(
            1, dist.topk(count, largest=False).indices, value=True
        )
        return nearest & same

    def cost(self, components: Tensor, features: Tensor, targets: Tensor, others: Tensor) -> Tensor:
        """The objective, per item."""
        dist = squared_distance(features @ components.T)  # [N, N]
        pull = (dist * targets).sum()
        push, _ = hinge_triplets(dist, targets, others, margin=1.0)
        return ((1 - self.push) * pull + self.push * push) / len(features)
