"""Who may answer a query, and who is right: labels, own positions and ignored groups."""

import copy
import math

import torch
from torch import Tensor

from unseen.neighbours.product import Exclude
from unseen.neighbours.space import Space


class Relevance:
    """Labels and exclusions of a space's queries and gallery items."""

    def __init__(
        self,
        space: Space,
        labels: Tensor,
        gallery_labels: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        groups: Tensor | None = None,
        gallery_groups: Tensor | None = None,
    ) -> None:
        num_queries, num_items = len(space.queries), len(space.gallery)
        device = space.queries.device
        if gallery_labels is None:
            gallery_labels = labels
        self.labels = _column(labels, num_queries, "labels", device)
        self.gallery_labels = _column(gallery_labels, num_items, "gallery_labels", device)
        if positions is None:
            positions = torch.arange(num_queries) if space.symmetric else -torch.ones_like(labels)
        elif space.symmetric:
            raise ValueError("positions are for queries in a gallery; self-retrieval knows them")
        self.positions = _column(positions, num_queries, "positions", device)
        if num_queries and not -1 <= int(positions.min()) <= int(positions.max()) < num_items:
            raise ValueError(f"positions must lie in [-1, {num_items - 1}]")
        self.groups: tuple[Tensor, Tensor] | None = None  # of queries, of gallery items
        if groups is not None:
            theirs = groups if gallery_groups is None else gallery_groups
            self.groups = (
                _column(groups, num_queries, "ignore_groups", device),
                _column(theirs, num_items, "gallery_ignore_groups", device),
            )
        # In self-retrieval, removing a query from its own list is the product's business.
        by_position = not space.symmetric and bool((positions >= 0).any())
        self.exclude: Exclude | None = self.forbidden if by_position or self.groups else None
        self.num_relevant = self._count()  # [Q]
        self._sorted_labels, self._by_label = self.gallery_labels.sort(stable=True)

    def part(self, rows: slice) -> "Relevance":
        """The same for some queries, which then find themselves in the gallery by position."""
        part = copy.copy(self)
        part.labels, part.positions = self.labels[rows], self.positions[rows]
        part.num_relevant = self.num_relevant[rows]
        if self.groups is not None:
            part.groups = self.groups[0][rows], self.groups[1]
        part.exclude = part.forbidden
        return part

    def forbidden(self, query: Tensor, items: Tensor) -> Tensor:  # bool
        """Which gallery items may not answer which queries; the shapes go together."""
        found = self.positions[query] == items
        if self.groups is not None:
            mine, theirs = self.groups[0][query], self.groups[1][items]
            found |= (mine == theirs) & (theirs >= 0)
        return found

    def forbid(self, block: Tensor, query: Tensor, first_column: int) -> None:
        """Sets the entries of a block [R, C] that may not answer its queries [R] to -inf."""
        items = torch.arange(first_column, first_column + block.shape[1], device=block.device)
        block.masked_fill_(self.forbidden(query[:, None], items), -math.inf)

    def matches(self, query: Tensor, items: Tensor) -> Tensor:  # bool [R, K]
        """Which gallery items [R, K] have the label of their query [R]; -1 is nobody."""
        same = self.gallery_labels[items.clamp(min=0)] == self.labels[query, None]
        return same & (items >= 0)

    def relevant_items(self, query: Tensor) -> Tensor:  # [R, most]
        """Every relevant item of each query, -1 where there are no more."""
        start = torch.searchsorted(self._sorted_labels, self.labels[query])
        stop = torch.searchsorted(self._sorted_labels, self.labels[query], right=True)
        most = int((stop - start).max()) if len(start) else 0
        place = start[:, None] + torch.arange(most, device=start.device)
        items = self._by_label[place.clamp(max=len(self._by_label) - 1)]
        allowed = (place < stop[:, None]) & (items != self.positions[query, None])
        if self.groups is not None:
            theirs = self.groups[1][items]
            allowed &= (theirs != self.groups[0][query, None]) | (theirs < 0)
        return items.masked_fill(~allowed, -1)

    def _count(self) -> Tensor:  # [Q]
        """Relevant items of each query: its class in the gallery, less itself, less its group."""
        if not len(self.gallery_labels):
            return torch.zeros_like(self.labels)
        _, code = torch.unique(torch.cat([self.labels, self.gallery_labels]), return_inverse=True)
        mine, theirs = code.tensor_split([len(self.labels)])
        count = torch.bincount(theirs, minlength=int(code.max()) + 1)[mine]
        itself = self.positions.clamp(min=0)
        answers = (self.positions >= 0) & (self.gallery_labels[itself] == self.labels)
        if self.groups is not None:
            _, group = torch.unique(torch.cat(self.groups), return_inverse=True)
            both = code * (group.max() + 1) + group  # class and group
            cells, both = torch.unique(both, return_inverse=True)
            in_gallery = both[len(self.labels) :][self.groups[1] >= 0]
            count -= torch.bincount(in_gallery, minlength=len(cells))[both[: len(self.labels)]]
            ignored = (self.groups[1][itself] == self.groups[0]) & (self.groups[0] >= 0)
            answers &= ~ignored  # else it would be counted out twice
        return count - answers.long()


def _column(values: Tensor, length: int, name: str, device: torch.device) -> Tensor:
    if values.is_floating_point() or values.ndim != 1 or len(values) != length:
        raise ValueError(
            f"{name} must be {length} integers, got {values.dtype} of shape {list(values.shape)}"
        )
    return values.to(device=device, dtype=torch.int64)
