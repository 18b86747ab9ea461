"""Lists as selected become lists as defined: near-equals are compared in float64.

    order    by similarity on the grid of neighbors/space.py, then `later` items behind the others
             (evaluation: right ones, so that ties count against us), then by position
    end      a list that ends among near-equals is chosen anew from everything that may belong there

So lists depend neither on the precision of the first pass nor on the size of blocks.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from unseen.neighbors.block_products import Exclude
from unseen.neighbors.space import Space
from unseen.neighbors.threads import in_parallel

CHUNK = 2**22  # float64 numbers a thread works on at a time

Later = Callable[[Tensor, Tensor], Tensor]  # queries [R] and items [R, K] -> bool [R, K]
Resolved = tuple[Tensor, Tensor, Tensor]  # values and items [Q, depth], tied [Q]


def resolve(
    space: Space,
    values: Tensor,
    items: Tensor,
    depth: int,
    *,
    forbidden: Exclude | None = None,
    later: Later | None = None,
) -> Resolved:
    """Of lists as selected [Q, depth + 1]. tied: `later` had a say in a list."""
    near = values[:, :-1] - values[:, 1:] <= space.tolerance  # [Q, kept - 1]; false beside -inf
    open_ended = torch.zeros(len(items), dtype=torch.bool, device=items.device)
    if items.shape[1] > depth:
        open_ended |= near[:, depth - 1]
    items, values = (t[:, :depth].clone() for t in (items, values))
    near = near[:, : depth - 1]
    tied = torch.zeros_like(open_ended)
    relevance_filter = later if later is not None else _nobody

    def work(task: tuple[bool, Tensor]) -> None:
        is_open, query = task
        if is_open:
            result = _recomputed(space, query, values[query], forbidden, relevance_filter)
        else:
            exact = _exact_where_near(space, query, items[query], values[query], near[query])
            places = items[query].sort(dim=1)
            exact = exact.gather(1, places.indices)
            result = _in_order(places.values, exact, relevance_filter(query, places.values))
        items[query], exact, tied[query] = result
        values[query] = (exact * space.grid).to(values.dtype)

    inner = (near.any(1) & ~open_ended).nonzero()[:, 0]
    tasks = [(False, query) for query in inner.split(max(1, CHUNK // (64 * depth)))]
    in_gallery = max(1, CHUNK // len(space.gallery))
    tasks += [(True, query) for query in open_ended.nonzero()[:, 0].split(in_gallery)]
    in_parallel([task for task in tasks if len(task[1])], work, items.device)
    return values, items, tied


def _nobody(query: Tensor, items: Tensor) -> Tensor:
    return torch.zeros_like(items, dtype=torch.bool)


def _exact_where_near(
    space: Space, query: Tensor, items: Tensor, values: Tensor, near: Tensor
) -> Tensor:  # [R, K] float64 in grid units
    """Similarities, exact where the next in the list is so near that the order is in doubt."""
    doubtful = torch.nn.functional.pad(near, (0, 1)) | torch.nn.functional.pad(near, (1, 0))
    row, place = doubtful.nonzero(as_tuple=True)
    exact = values.double() / space.grid
    exact[row, place] = exact_pairs(space, query[row], items[row, place])
    return exact


def _in_order(
    items: Tensor, exact: Tensor, last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # items, values [R, K]; tied [R]
    """Lists given by rising position, sorted by similarity, then the later ones behind."""
    order = last.to(torch.int8).argsort(dim=1, stable=True)
    order = order.gather(1, exact.gather(1, order).argsort(dim=1, descending=True, stable=True))
    items, exact, last = (t.gather(1, order) for t in (items, exact, last))
    equal = (exact[:, :-1] == exact[:, 1:]) & (items[:, 1:] >= 0)
    return items, exact, (equal & (last[:, :-1] != last[:, 1:])).any(1)


def _recomputed(
    space: Space, query: Tensor, values: Tensor, forbidden: Exclude | None, later: Later
) -> tuple[Tensor, Tensor, Tensor]:
    """Lists that end among equals, values [R, K] as selected, chosen anew from the gallery."""
    depth = values.shape[1]
    exact = _exact_above(space, query, values[:, -1:] - 2 * space.tolerance)  # [R, G]
    num_items = exact.shape[1]
    everyone = torch.arange(num_items, device=exact.device)
    if forbidden is not None:
        exact.masked_fill_(forbidden(query[:, None], everyone), -math.inf)
    end = exact.topk(depth, dim=1).values[:, -1:]
    last = later(query, everyone.expand(exact.shape))
    backwards = everyone.flip(0).to(exact.dtype)
    # Above the last value: surely in. At it: later items last, then by position. Below: out.
    claim = torch.where(last, backwards, backwards + num_items).masked_fill_(exact < end, -1.0)
    claim.masked_fill_(exact > end, 2.0 * num_items)
    chosen = claim.topk(depth, dim=1).indices.sort(dim=1).values
    values = exact.gather(1, chosen)
    items = chosen.masked_fill(values == -math.inf, -1)
    items, values, tied = _in_order(items, values, last.gather(1, chosen) & (items >= 0))
    at_end = (exact == end) & (end > -math.inf)
    return items, values, tied | ((at_end & last).any(1) & (at_end & ~last).any(1))


def _exact_above(space: Space, query: Tensor, bar: Tensor) -> Tensor:  # [R, G] float64
    """Similarities in grid units; those above the bar [R, 1] are exact, the others below it."""
    fast = space.left[query] @ space.right.T
    row, item = (fast > bar).nonzero(as_tuple=True)
    if len(row) * 8 > fast.numel():  # so many that one product is cheaper
        return space.exact_rows(query)
    exact = fast.double() / space.grid
    exact[row, item] = exact_pairs(space, query[row], item)
    return exact


def exact_pairs(space: Space, query: Tensor, items: Tensor) -> Tensor:  # [P] float64
    """Similarities of queries [P] and gallery items [P] in grid units."""
    step = max(1, CHUNK // space.queries.shape[1])
    parts = [
        space.exact(q, i[:, None])[:, 0]
        for q, i in zip(query.split(step), items.split(step), strict=True)
    ]
    return torch.cat(parts)
