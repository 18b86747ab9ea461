"""The nearest neighbours of every query, exact: selected by fast products, settled in float64."""

import torch
from torch import Tensor

from unseen.contracts import Progress
from unseen.neighbours.product import Exclude, Tally
from unseen.neighbours.select import Precision, select
from unseen.neighbours.settle import settle
from unseen.neighbours.space import Space


def nearest(
    space: Space,
    keep: int,
    *,
    exclude: Exclude | None = None,
    block: int = 1024,
    memory: int = 2**30,
    progress: Progress | None = None,
    precision: Precision = "auto",
    tally: Tally | None = None,
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
        tally=tally,
    )
    found = settle(space, values, items, keep, forbidden=forbidden)
    return found[:2]
