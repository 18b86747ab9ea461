"""Who may answer a query, and who is right: labels, own positions and ignored groups."""

import copy
import math

import torch
from torch import Tensor

from unseen.evaluation.nearest import Exclude
from unseen.evaluation.space import Space


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
        given = gallery_labels if gallery_labels is not None else labels
        self.labels = _column(labels, num_queries, "labels", device)
        self.gallery_labels = _column(given, num_items, "gallery_labels", device)
        if space.symmetric:
            if positions is not None:
                raise ValueError(
                    "positions are for queries in a gallery; self-retrieval knows them"
                )
            positions = torch.arange(num_queries)
        elif positions is None:
            positions = torch.full((num_queries,), -1)
        self.positions = _column(positions, num_queries, "positions", device)
        self.groups = self.gallery_groups = None
        if groups is not None:
            given = gallery_groups if gallery_groups is not None else groups
            self.groups = _column(groups, num_queries, "ignore_groups", device)
            self.gallery_groups = _column(given, num_items, "gallery_ignore_groups", device)
        # Removing a query from its own list is the product's business in self-retrieval.
        masks = self.groups is not None or (not space.symmetric and bool((positions >= 0).any()))
        self.exclude: Exclude | None = self._exclude if masks else None
        self.num_relevant = self._count()
        self._sorted_labels, self._by_label = self.gallery_labels.sort(stable=True)

    def part(self, rows: slice) -> "Relevance":
        """The same for some queries, which then find themselves in the gallery by position."""
        part = copy.copy(self)
        part.labels, part.positions = self.labels[rows], self.positions[rows]
        part.num_relevant = self.num_relevant[rows]
        part.groups = None if self.groups is None else self.groups[rows]
        part.exclude = part._exclude
        return part

    def _exclude(self, block: Tensor, rows: slice, columns: slice) -> None:
        block = block[: len(self.positions[rows]), : len(self.gallery_labels[columns])]
        self.forbid(block, torch.arange(*rows.indices(len(self.positions))), columns.start)

    def forbid(self, block: Tensor, query: Tensor, first_column: int) -> None:
        """Sets the entries of a block [R, C] that may not answer its queries [R] to -inf."""
        query = query.to(block.device)
        own = self.positions[query] - first_column
        inside = (own >= 0) & (own < block.shape[1]) & (self.positions[query] >= 0)
        block[inside.nonzero()[:, 0], own[inside]] = -math.inf
        if self.groups is not None and self.gallery_groups is not None:
            columns = self.gallery_groups[first_column : first_column + block.shape[1]]
            same = self.groups[query, None] == columns
            block.masked_fill_(same & (columns >= 0), -math.inf)

    def matches(self, query: Tensor, items: Tensor) -> Tensor:  # bool [R, K]
        """Which gallery items [R, K] have the label of their query [R]; -1 is nobody."""
        same = self.gallery_labels[items.clamp(min=0)] == self.labels[query, None]
        return same & (items >= 0)

    def relevant_items(self, query: Tensor) -> Tensor:  # [R, most]
        """Every relevant item of each query, -1 where there are no more."""
        start = torch.searchsorted(self._sorted_labels, self.labels[query])
        count = torch.searchsorted(self._sorted_labels, self.labels[query], right=True) - start
        most = int(count.max()) if len(count) else 0
        place = start[:, None] + torch.arange(most, device=start.device)
        items = self._by_label[place.clamp(max=max(len(self._by_label) - 1, 0))]
        allowed = place < (start + count)[:, None]
        allowed &= items != self.positions[query, None]
        if self.groups is not None and self.gallery_groups is not None:
            groups = self.gallery_groups[items]
            allowed &= (groups != self.groups[query, None]) | (groups < 0)
        return items.masked_fill(~allowed, -1)

    def _count(self) -> Tensor:  # [Q]
        """Relevant items of each query: its class in the gallery, less itself, less its group."""
        count = _occurrences(self.labels[:, None], self.gallery_labels[:, None])
        if self.groups is not None and self.gallery_groups is not None:
            mine = torch.stack([self.labels, self.groups], dim=1)
            theirs = torch.stack([self.gallery_labels, self.gallery_groups], dim=1)
            count -= _occurrences(mine, theirs[self.gallery_groups >= 0])
        own = self.positions >= 0
        if not len(self.gallery_labels):
            return count
        place = self.positions.clamp(min=0)
        own &= self.gallery_labels[place] == self.labels
        if self.groups is not None and self.gallery_groups is not None:  # counted out already
            own &= ~((self.gallery_groups[place] == self.groups) & (self.groups >= 0))
        return count - own.long()


def _occurrences(mine: Tensor, theirs: Tensor) -> Tensor:  # [Q]
    """How often each row of one table stands in another."""
    _, code = torch.unique(torch.cat([theirs, mine]), dim=0, return_inverse=True)
    count = torch.bincount(code[: len(theirs)], minlength=int(code.max()) + 1 if len(code) else 0)
    return count[code[len(theirs) :]]


def _column(values: Tensor, length: int, name: str, device: torch.device) -> Tensor:
    values = torch.as_tensor(values)
    if values.is_floating_point() or values.ndim != 1 or len(values) != length:
        raise ValueError(
            f"{name} must be {length} integers, got {values.dtype} of shape {list(values.shape)}"
        )
    return values.to(device=device, dtype=torch.int64)
