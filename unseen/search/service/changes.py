"""What changed between two indexes of the same images: two runs, asked the same.

Images are known again by their path. An image's answer changed when its ten nearest others are
not the same; where it has a label, also whether the nearest is right.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unseen.search.index import Index

DEPTH = 10


@dataclass(frozen=True)
class Change:
    """One image asked of both. `right` is None where it has no label."""

    id: int  # in the first index
    other_id: int
    shared: int  # of the ten nearest
    right: bool | None
    other_right: bool | None


def changes(first: Index, second: Index, most: int = 2000) -> list[Change]:
    """Images of both indexes, those whose conclusion changed first, then by how little is shared;
    of more than `most` images every so many."""
    other = {metadata.name: id for id, metadata in second.every()}
    both = [
        (id, other[metadata.name], metadata)
        for id, metadata in first.every()
        if metadata.name in other
    ]
    both = both[:: max(1, -(-len(both) // most))]
    if not both:
        return []
    paths = [metadata.path for _, _, metadata in both]
    labels = [metadata.label for _, _, metadata in both]
    ours = _nearest(first, [id for id, _, _ in both])
    theirs = _nearest(second, [id for _, id, _ in both])
    result = []
    for place, (id, other_id, _) in enumerate(both):
        a, b = (
            _metadata(index, row) for index, row in ((first, ours[place]), (second, theirs[place]))
        )
        label, own = labels[place], paths[place]
        mine = [fact for fact in a if fact[0] != own][:DEPTH]
        yours = [fact for fact in b if fact[0] != own][:DEPTH]
        shared = len({path for path, _ in mine} & {path for path, _ in yours})
        right = None if label is None or not mine else mine[0][1] == label
        other_right = None if label is None or not yours else yours[0][1] == label
        result.append(Change(id, other_id, shared, right, other_right))
    return sorted(result, key=lambda change: (change.right == change.other_right, change.shared))


def _nearest(index: Index, ids: list[int]) -> NDArray[np.int64]:  # [n, DEPTH + 1]
    return index.search(index.vectors(ids), DEPTH + 1).ids


def _metadata(index: Index, ids: NDArray[np.int64]) -> list[tuple[str, str | None]]:
    images = (index.image(int(id)) for id in ids if id >= 0)
    return [(image.path, image.label) for image in images]
