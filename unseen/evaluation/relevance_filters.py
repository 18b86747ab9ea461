"""Relevance filters: who may answer a query, and who is right.

`filter_of(space, labels)` gives a filter by class, as fast as labels are, or one by relevance,
which compares queries and gallery in blocks. Both also say how much two items are the same.
"""

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels, Related, Relation
from unseen.neighbors.block_products import Exclude
from unseen.neighbors.space import Space

ENTRIES = 2**22  # of queries by gallery items that are compared at a time


class RelevanceFilter(ABC):
    """Abstract: the queries and gallery items of a space. labels, gallery_labels: their classes, by
    which scores are averaged."""

    def __init__(
        self,
        space: Space,
        labels: Tensor,
        gallery_labels: Tensor,
        *,
        positions: Tensor | None = None,
        groups: Tensor | None = None,
        gallery_groups: Tensor | None = None,
    ) -> None:
        num_queries, num_items = len(space.queries), len(space.gallery)
        device = space.queries.device
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
        self.num_relevant = torch.zeros_like(self.labels)  # [Q], until it is counted

    def of_queries(self, rows: slice) -> Self:
        """The same for some queries, which then find themselves in the gallery by position."""
        some = copy.copy(self)
        some.labels, some.positions = self.labels[rows], self.positions[rows]
        some.num_relevant = self.num_relevant[rows]
        if self.groups is not None:
            some.groups = self.groups[0][rows], self.groups[1]
        some.take(rows)
        some.exclude = some.forbidden
        return some

    def forbidden(self, query: Tensor, items: Tensor) -> Tensor:  # bool
        """Which gallery items may not answer which queries; the shapes go together."""
        result = self.positions[query] == items
        if self.groups is not None:
            mine, theirs = self.groups[0][query], self.groups[1][items]
            result |= (mine == theirs) & (theirs >= 0)
        unknown = self.unknown(query, items)
        return result if unknown is None else result | unknown

    def forbid(self, block: Tensor, query: Tensor, first_column: int) -> None:
        """Sets the entries of a block [R, C] that may not answer its queries [R] to -inf."""
        items = torch.arange(first_column, first_column + block.shape[1], device=block.device)
        block.masked_fill_(self.forbidden(query[:, None], items), -math.inf)

    @abstractmethod
    def take(self, rows: slice) -> None:
        """Forgets all queries but some."""

    @abstractmethod
    def unknown(self, query: Tensor, items: Tensor) -> Tensor | None:
        """Of which pairs nobody knows whether they are the same; None: all are known."""

    @abstractmethod
    def right(self, query: Tensor, columns: slice) -> Tensor:  # bool [R, C]
        """Which of the gallery's columns are the same as queries [R]."""

    @abstractmethod
    def grades(self, query: Tensor) -> Tensor:  # [R, G] float
        """How much each gallery item is the same as queries [R], 0 to 1."""

    @abstractmethod
    def matches(self, query: Tensor, items: Tensor) -> Tensor:  # bool [R, K]
        """Which gallery items [R, K] are the same as their query [R]; -1 is nobody."""

    @abstractmethod
    def relevant_items(self, query: Tensor) -> Tensor:  # [R, most]
        """Every relevant item of each query, -1 where there are no more."""


class ClassFilter(RelevanceFilter):
    """By class: labels of queries and gallery items. related: where classes are levels of a
    hierarchy, queries and gallery items in it."""

    def __init__(
        self,
        space: Space,
        labels: Tensor,
        gallery_labels: Tensor | None = None,
        *,
        related: tuple[Related, Related] | None = None,
        positions: Tensor | None = None,
        groups: Tensor | None = None,
        gallery_groups: Tensor | None = None,
    ) -> None:
        super().__init__(
            space,
            labels,
            labels if gallery_labels is None else gallery_labels,
            positions=positions,
            groups=groups,
            gallery_groups=gallery_groups,
        )
        self.related = related
        self.num_relevant = self._count()  # [Q]
        self._sorted_labels, self._by_label = self.gallery_labels.sort(stable=True)

    def take(self, rows: slice) -> None:
        if self.related is not None:
            self.related = self.related[0][rows], self.related[1]

    def unknown(self, query: Tensor, items: Tensor) -> Tensor | None:
        return None

    def right(self, query: Tensor, columns: slice) -> Tensor:
        return self.labels[query, None] == self.gallery_labels[columns]

    def grades(self, query: Tensor) -> Tensor:
        if self.related is None:
            return self.right(query, slice(None)).float()
        return self.related[0][query].to(self.related[1]).grade

    def matches(self, query: Tensor, items: Tensor) -> Tensor:
        same = self.gallery_labels[items.clamp(min=0)] == self.labels[query, None]
        return same & (items >= 0)

    def relevant_items(self, query: Tensor) -> Tensor:
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


class GradedFilter(RelevanceFilter):
    """By relevance: queries and gallery items as it knows them."""

    def __init__(
        self,
        space: Space,
        queries: Related,
        gallery: Related,
        *,
        positions: Tensor | None = None,
        groups: Tensor | None = None,
        gallery_groups: Tensor | None = None,
    ) -> None:
        self.queries, self.gallery = queries, gallery
        super().__init__(
            space,
            queries.classes,
            gallery.classes,
            positions=positions,
            groups=groups,
            gallery_groups=gallery_groups,
        )
        if queries.relevance.has_unknown:
            self.exclude = self.forbidden
        rows = max(1, ENTRIES // max(1, len(gallery)))
        parts = [self._mask(query).sum(dim=1) for query in self._everyone().split(rows)]
        self.num_relevant = torch.cat(parts) if parts else self.num_relevant

    def take(self, rows: slice) -> None:
        self.queries = self.queries[rows]

    def unknown(self, query: Tensor, items: Tensor) -> Tensor | None:
        if not self.queries.relevance.has_unknown:
            return None
        same, different, _ = self._relate(query, items)
        return ~(same | different)

    def right(self, query: Tensor, columns: slice) -> Tensor:
        return self.queries[query].to(self.gallery[columns]).same

    def grades(self, query: Tensor) -> Tensor:
        return self.queries[query].to(self.gallery).grade

    def matches(self, query: Tensor, items: Tensor) -> Tensor:
        return self._relate(query[:, None], items.clamp(min=0)).same & (items >= 0)

    def relevant_items(self, query: Tensor) -> Tensor:
        rows = max(1, ENTRIES // max(1, len(self.gallery)))
        result = [self._listed(self._mask(some)) for some in query.split(rows)]
        most = max((items.shape[1] for items in result), default=0)
        wide = [torch.nn.functional.pad(i, (0, most - i.shape[1]), value=-1) for i in result]
        return torch.cat(wide) if wide else query.new_zeros(0, 0)

    def _mask(self, query: Tensor) -> Tensor:  # bool [R, G]
        everyone = torch.arange(len(self.gallery), device=query.device)
        return self.right(query, slice(None)) & ~self.forbidden(query[:, None], everyone)

    @staticmethod
    def _listed(mask: Tensor) -> Tensor:  # [R, most], -1 where there are no more
        count = mask.sum(dim=1)
        most = int(count.max()) if len(count) else 0
        items = mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
        return items.masked_fill(torch.arange(most, device=mask.device) >= count[:, None], -1)

    def _relate(self, query: Tensor, items: Tensor) -> Relation:
        """Of queries to gallery items, the shapes going together."""
        return self.queries.relevance.relate(self.queries.items[query], self.gallery.items[items])

    def _everyone(self) -> Tensor:
        return torch.arange(len(self.queries), device=self.labels.device)


def filter_of(
    space: Space,
    labels: AnyLabels,
    gallery_labels: AnyLabels | None = None,
    *,
    positions: Tensor | None = None,
    groups: Tensor | None = None,
    gallery_groups: Tensor | None = None,
) -> RelevanceFilter:
    """The relevance filter of a space's queries and gallery items; without the second, the first
    are both."""
    more: dict[str, Any] = {
        "positions": positions,
        "groups": groups,
        "gallery_groups": gallery_groups,
    }
    if isinstance(labels, Tensor):
        assert not isinstance(gallery_labels, Related), "both are labels, or both are related"
        return ClassFilter(space, labels, gallery_labels, **more)
    theirs = labels if gallery_labels is None else gallery_labels
    assert isinstance(theirs, Related), "both are labels, or both are related"
    if labels.relevance.has_classes and labels.relevance.classes is not None:
        return ClassFilter(space, labels.classes, theirs.classes, related=(labels, theirs), **more)
    return GradedFilter(space, labels, theirs, **more)


def _column(values: Tensor, length: int, name: str, device: torch.device) -> Tensor:
    if values.is_floating_point() or values.ndim != 1 or len(values) != length:
        raise ValueError(
            f"{name} must be {length} integers, got {values.dtype} of shape {list(values.shape)}"
        )
    return values.to(device=device, dtype=torch.int64)
