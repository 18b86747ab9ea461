"""Leaks between the parts of a split: shared classes are an error, duplicates are counted."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unseen.core.contracts import Dataset, IdentifiedDataset, Progress, Split, item_ids_of
from unseen.core.relevance import Relevance
from unseen.data.images import duplicates
from unseen.training.manifest import ACROSS

NAMED = 3  # pairs of copies that are named one by one


@dataclass(frozen=True)
class Copies:
    """Groups of positions with the same content."""

    groups: duplicates.Groups
    across: int  # items of training or validation classes with a copy in another part
    relabelled: int  # items with a copy under another label
    examples: list[str]

    def counts(self) -> dict[str, int]:
        return {
            "duplicates": sum(len(group) - 1 for group in self.groups),
            ACROSS: self.across,
            "duplicates under other labels": self.relabelled,
        }


def copies(dataset: Dataset, split: Split, progress: Progress | None = None) -> Copies | None:
    """Duplicates among the items; None where items have no content to compare.

    Near-duplicates need every image decoded: `unseen data check` finds them.
    """
    if not isinstance(dataset, IdentifiedDataset):
        return None
    groups = duplicates.same(dataset.digests(progress))
    side = parts(len(dataset), split)
    ids = dataset.item_ids()
    across = relabelled = 0
    examples: list[str] = []
    for group in groups:
        sides = {int(side[i]) for i in group} - {-1}
        if len(sides) > 1:
            across += sum(side[i] in (0, 1) for i in group)
            pairs = ((i, j) for i, j in combinations(group, 2) if side[i] != side[j])
            i, j = next(pairs)
            examples.append(f"{ids[i]} = {ids[j]}")
        if len({int(dataset.labels[i]) for i in group}) > 1:
            relabelled += len(group)
    return Copies(groups, across, relabelled, examples[:NAMED])


def parts(num_items: int, split: Split) -> np.ndarray:  # [n]: 0 train, 1 validation, 2 test, or -1
    side = np.full(num_items, -1)
    for number, items in enumerate((split.train, split.validation, split.test)):
        side[items] = number
    return side


def refuse_shared_classes(dataset: Dataset, split: Split, relevance: Relevance) -> None:
    """A ValueError that names classes which are trained on and tested on, or selected on, or an
    item that is the same as one of another part."""
    crossing = np.flatnonzero(relevance.crossing(parts(len(dataset), split)))
    if len(crossing):
        name = item_ids_of(dataset)[crossing[0]]
        raise ValueError(f"{len(crossing)} items are the same as some of another part: {name}")
    named = {"train": split.train, "validation": split.validation, "test": split.test}
    for (one, left), (two, right) in combinations(named.items(), 2):
        shared = np.intersect1d(dataset.labels[left], dataset.labels[right])
        if len(shared):
            names = ", ".join(str(dataset.label_names[c]) for c in shared[:NAMED])
            raise ValueError(f"{len(shared)} classes are both in {one} and in {two}: {names}")
