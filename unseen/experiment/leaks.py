"""What would make a score look better than it is: classes or pictures on both sides of the split.

A class on both sides is an error. Exact copies of pictures are counted, told and recorded; near
copies are `unseen data check`'s business, which decodes every picture.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unseen.contracts import Dataset, IdentifiedDataset, Progress, Split, item_ids_of
from unseen.data.pictures import duplicates
from unseen.relevance import Relevance
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
            "exact copies": sum(len(group) - 1 for group in self.groups),
            ACROSS: self.across,
            "exact copies under other labels": self.relabelled,
        }


def copies(dataset: Dataset, split: Split, progress: Progress | None = None) -> Copies | None:
    """Exact copies among the items; None where items have no content to compare."""
    if not isinstance(dataset, IdentifiedDataset):
        return None
    groups = duplicates.same(dataset.digests(progress))
    part = parts(len(dataset), split)
    ids = dataset.item_ids()
    across = relabelled = 0
    examples: list[str] = []
    for group in groups:
        found = {int(part[i]) for i in group} - {-1}
        if len(found) > 1:
            across += sum(part[i] in (0, 1) for i in group)
            pairs = ((i, j) for i, j in combinations(group, 2) if part[i] != part[j])
            i, j = next(pairs)
            examples.append(f"{ids[i]} = {ids[j]}")
        if len({int(dataset.labels[i]) for i in group}) > 1:
            relabelled += len(group)
    return Copies(groups, across, relabelled, examples[:NAMED])


def parts(num_items: int, split: Split) -> np.ndarray:  # [n]: 0 train, 1 validation, 2 test, or -1
    part = np.full(num_items, -1)
    for number, items in enumerate((split.train, split.validation, split.test)):
        part[items] = number
    return part


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
