"""Who asks whom among some items: queries, gallery, and groups that do not answer each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels, Related

Labels = AnyLabels | Mapping[str, AnyLabels]  # [n], or several columns of them by name


@dataclass(frozen=True)
class RetrievalTask:
    """One entry per item. Without queries and gallery every item asks all others."""

    labels: Labels
    query: Tensor | None = None  # positions of the items that ask; None: all
    gallery: Tensor | None = None  # positions of the items that answer; None: all
    groups: Tensor | None = None  # [n] items of a group do not answer each other; negative: none

    def arguments(self, embeddings: Tensor) -> dict[str, Any]:
        """What `evaluate` and `retrieve` are to be called with, given embeddings [n, D]."""
        if self.query is None and self.gallery is None:
            groups = {} if self.groups is None else {"ignore_groups": self.groups}
            return {"embeddings": embeddings, "labels": self.labels, **groups}
        everyone = torch.arange(len(embeddings))
        query = everyone if self.query is None else self.query
        gallery = everyone if self.gallery is None else self.gallery
        place = torch.full_like(everyone, -1)
        place[gallery] = torch.arange(len(gallery))
        groups = {}
        if self.groups is not None:
            groups["ignore_groups"] = self.groups[query]
            groups["gallery_ignore_groups"] = self.groups[gallery]
        return {
            "embeddings": embeddings[query],
            "labels": _rows(self.labels, query),
            "gallery_embeddings": embeddings[gallery],
            "gallery_labels": _rows(self.labels, gallery),
            "positions": place[query],
            **groups,
        }

    def of(self, items: Tensor) -> "RetrievalTask":
        """The task that is left of some items, at rising positions."""
        place = torch.full((int(items.max()) + 1 if len(items) else 0,), -1)
        place[items] = torch.arange(len(items))

        def left(positions: Tensor | None) -> Tensor | None:
            return None if positions is None else place[positions[torch.isin(positions, items)]]

        groups = None if self.groups is None else self.groups[items]
        return RetrievalTask(
            _rows(self.labels, items), left(self.query), left(self.gallery), groups
        )

    def query_labels(self) -> Tensor:  # [Q]
        """The classes of the items that ask."""
        labels = self.labels[""] if isinstance(self.labels, Mapping) else self.labels
        classes = labels.classes if isinstance(labels, Related) else labels
        return classes if self.query is None else classes[self.query]


def _rows(labels: Labels, rows: Tensor) -> Labels:
    if isinstance(labels, Mapping):
        return {name: column[rows] for name, column in labels.items()}
    return labels[rows]
