"""Large margin nearest neighbour."""

import torch
from torch import Tensor

from unseen.classical.base import LinearMetric
from unseen.core.geometry import squared_distance
from unseen.core.hinges import hinge_triplets
from unseen.core.tuples import relations


class Lmnn(LinearMetric):
    """LMNN: the nearest items of the own class stay nearer than any other by a margin.

    Formula:
        T(i) the `neighbors` nearest items of i's class before learning, d squared distances in
        the learned space, mu the share of the push:

            (1 - mu) sum over i, j in T(i) of d(i, j)
              + mu sum over i, j in T(i), l of other classes of [1 + d(i, j) - d(i, l)]+

        By L-BFGS on G, from the identity.

    Paper:
        K. Weinberger, L. Saul, Distance Metric Learning for Large Margin Nearest Neighbor
        Classification, JMLR 2009

    Args:
        neighbors: how many of its class each item keeps near; 3.
        push: the share mu; 0.5.
        max_iterations: of L-BFGS; 50.

    Use:
        classes with more items than `neighbors`; smaller ones pull as many as they have. Each
        iteration costs N^2 D; the sum over triplets is exact and needs no list of impostors.

    Example:
        >>> import torch
        >>> from unseen.classical import Lmnn
        >>> features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]])
        >>> metric = Lmnn(neighbors=1).fit(features, torch.tensor([0, 0, 1, 1]))
        >>> metric.transform(features).shape
        torch.Size([4, 2])
    """

    def __init__(self, neighbors: int = 3, push: float = 0.5, max_iterations: int = 50) -> None:
        if neighbors < 1 or max_iterations < 1:
            raise ValueError(
                "neighbors and max_iterations must be at least 1, "
                f"got {neighbors} and {max_iterations}"
            )
        if not 0 < push < 1:
            raise ValueError(f"push must be between 0 and 1, got {push}")
        self.neighbors, self.push, self.max_iterations = neighbors, push, max_iterations

    def learn(self, features: Tensor, labels: Tensor) -> Tensor:
        targets, others = self.targets(features, labels), relations(labels)[1]
        components = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
        components.requires_grad_()
        optimizer = torch.optim.LBFGS(
            [components], max_iter=self.max_iterations, line_search_fn="strong_wolfe"
        )

        def closure() -> float:
            optimizer.zero_grad()
            cost = self.cost(components, features, targets, others)
            cost.backward()
            return cost.item()

        optimizer.step(closure)
        return components.detach()

    def targets(self, features: Tensor, labels: Tensor) -> Tensor:  # bool [N, N]
        """The nearest items of each item's class."""
        same = relations(labels)[0]
        dist = squared_distance(features).masked_fill(~same, torch.inf)
        count = min(self.neighbors, len(features) - 1)
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
