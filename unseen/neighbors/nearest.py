"""The nearest neighbours of every query, exact: selected by fast products, resolved in float64."""

import torch
from torch import Tensor

from unseen.core.contracts import Progress
from unseen.neighbors.block_products import Exclude, WorkCounter
from unseen.neighbors.exact_order import resolve
from unseen.neighbors.select import Precision, select
from unseen.neighbors.space import Space


def nearest(
    space: Space,
    keep: int,
    *,
    exclude: Exclude | None = None,
    block: int = 1024,
    memory: int = 2**30,
    progress: Progress | None = None,
    precision: Precision = "auto",
    counter: WorkCounter | None = None,
) -> tuple[Tensor, Tensor]:  # two [Q, keep]
    """Similarities, largest first, ties by position, and gallery positions (-1: none left).

    Arguments as in `select`. One neighbour more is looked at, to see whether a list ends in a tie.
    """

    def forbidden(query: Tensor, item: Tensor) -> Tensor:
        itself = (query == item) if space.symmetric else torch.zeros_like(item, dtype=torch.bool)
        return itself if exclude is None else itself | exclude(query, item)

    values, items = select(
        space,
        keep + 1,
        exclude=exclude,
        block=block,
        memory=memory,
        progress=progress,
        precision=precision,
        counter=counter,
    )
    result = resolve(space, values, items, keep, forbidden=forbidden)
    return result[:2]
