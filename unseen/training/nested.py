"""Nested embeddings (Matryoshka): the first values of an embedding are trained with it."""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from unseen.losses.base import name_of

AT = " at "


def row_at(name: str, size: int) -> str:
    """The row of a score table that evaluates the first values of what another one evaluates."""
    return f"{name}{AT}{size}"


class Nested(nn.Module):
    """Nested embeddings (Matryoshka): the first values of an embedding are trained with it.

    losses: one for each size, the sizes rising. weights: c_m; none: alike.

    Paper:
        A. Kusupati et al., Matryoshka Representation Learning, NeurIPS 2022,
        https://arxiv.org/abs/2205.13147

    Formula:
        for an embedding z of size D, sizes m rising to D, and a loss L_m for each of them

            sum over m of c_m L_m(z[:m]) / sum over m of c_m

        A loss that compares cosines normalises each prefix by itself. The paper has the sum alone;
        divided, regularizers and memory weigh beside it what they weigh without nesting.

    Losses:
        each size has class parameters of its own: the paper's MRL. Its MRL-E, where a prefix of
        the largest size's serves the smaller ones, saves memory where classes are very many.

    Miner:
        looks at each prefix: which negatives are hard, and how far apart two points of a sphere
        are (distance_weighted), depends on the size.

    Memory:
        keeps whole embeddings; each loss sees their prefixes. Regularizers see the whole.

    Values:
        c_m = 1 (paper). Sizes: halves of D down to where too little is left (paper: 8 to 2,048).

    Use:
        one model for a large index in little memory and for exact answers. A start from
        principal directions (`head.start`) has its prefixes in order already.
    """

    def __init__(self, losses: Mapping[int, nn.Module], weights: Sequence[float] = ()) -> None:
        super().__init__()
        weights = list(weights) or [1.0] * len(losses)
        if len(weights) != len(losses):
            raise ValueError(f"{len(losses)} nested sizes need as many weights, got {len(weights)}")
        for size, loss in losses.items():
            _refuse_fixed_size(loss, size)
        self.losses = nn.ModuleDict({str(size): loss for size, loss in losses.items()})
        self.fractions = [weight / sum(weights) for weight in weights]

    def prefixes(self, embeddings: Tensor) -> list[tuple[nn.Module, Tensor]]:
        """Each loss, and the first values of the embeddings [N, D] that it compares."""
        return [(loss, embeddings[:, : int(size)]) for size, loss in self.losses.items()]

    def mean(self, loss_values: Sequence[Tensor]) -> Tensor:
        """The loss value of all sizes."""
        every = torch.stack(list(loss_values))
        return (every * every.new_tensor(self.fractions)).sum()


def _refuse_fixed_size(loss: nn.Module, size: int) -> None:
    """A loss that was made for another size says so now, on two blank rows, not in the first step.
    A copy is asked: one of a stranger's may remember what it saw."""
    try:
        with torch.no_grad():
            copy.deepcopy(loss)(torch.ones(2, size), torch.zeros(2, dtype=torch.int64), None)
    except Exception as error:
        raise ValueError(
            f"{name_of(loss)} cannot be computed on the first {size} values of an embedding: "
            f"{str(error).splitlines()[0]}. Leave nested out, or name a loss made for each size"
        ) from error
