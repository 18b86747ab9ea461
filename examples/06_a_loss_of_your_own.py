"""A loss of your own: one class, one method. In a file of its own it is a name in every command:
`loss=./my_idea.py:MyIdea` (docs/extend/loss.md).

    python examples/06_a_loss_of_your_own.py
"""

import torch
from torch import Tensor

from unseen.core.geometry import log1p_sum_exp
from unseen.losses.base import MatrixLoss


class MyIdea(MatrixLoss):
    """scale: sharpness of the similarities."""

    def __init__(self, scale: float = 10.0) -> None:
        super().__init__()
        self.scale = scale

    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        pull = log1p_sum_exp(-self.scale * sim, where=pos)  # [N]
        push = log1p_sum_exp(self.scale * sim, where=neg)  # [N]
        return (pull + push).mean() / self.scale


generator = torch.Generator().manual_seed(0)
embeddings = torch.randn(12, 16, generator=generator, requires_grad=True)
labels = torch.arange(4).repeat_interleave(3)
optimizer = torch.optim.SGD([embeddings], lr=2.0)
for step in range(4):
    value = MyIdea()(embeddings, labels)
    print(f"step {step}: {value.item():.4f}")
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
