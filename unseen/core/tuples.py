"""Pairs and triplets of a batch as index tensors, and the conversions between them.

Both are named tuples of int64 tensors, laid out like pytorch-metric-learning's index tuples, so its
miners feed our losses and ours feed its losses. Anchors index the batch; positives and negatives
index the references (the batch itself when there are none). A triplet of the rho switch has
positive == anchor.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from unseen.core.relevance import AnyLabels, Related, keys_of


class Triplets(NamedTuple):
    """Tuple t says: anchor[t] is to be nearer to positive[t] than to negative[t]."""

    anchor: Tensor  # [T]
    positive: Tensor  # [T]
    negative: Tensor  # [T]


class Pairs(NamedTuple):
    """Two independent lists: pairs to pull together and pairs to push apart."""

    anchor: Tensor  # [P]
    positive: Tensor  # [P]
    anchor_of_negative: Tensor  # [Q]
    negative: Tensor  # [Q]


def from_indices(indices: tuple[Tensor, ...]) -> Pairs | Triplets:
    """Names a bare index tuple: three tensors are triplets, four are pairs."""
    if isinstance(indices, Pairs | Triplets):
        return indices
    if len(indices) == 3:
        return Triplets(*indices)
    if len(indices) == 4:
        return Pairs(*indices)
    raise ValueError(
        "tuples must be Pairs, Triplets, (anchor, positive, negative) or "
        f"(anchor, positive, anchor, negative), got {len(indices)} tensors"
    )


def check_lengths(tuples: Pairs | Triplets) -> None:
    """Stops lists that do not fit together."""
    pairs = as_pairs(tuples)
    if pairs[0].numel() != pairs[1].numel() or pairs[2].numel() != pairs[3].numel():
        raise ValueError(
            "tuples must name as many anchors as positives and as negatives, got "
            f"{', '.join(str(len(column)) for column in tuples)}"
        )


def check_within(tuples: Pairs | Triplets, labels: AnyLabels, ref_labels: AnyLabels | None) -> None:
    """Stops indices that no item, or no reference, has."""
    for name, column in zip(tuples._fields, tuples, strict=True):
        kind, seen = "items", labels
        if ref_labels is not None and not name.startswith("anchor"):
            kind, seen = "references", ref_labels
        low, high = (int(end) for end in column.aminmax()) if len(column) else (0, -1)
        if low < 0 or high >= len(seen):
            what = f"{kind} 0 to {len(seen) - 1}"
            raise ValueError(f"tuples must point at {what}, got {name} {low} to {high}")


def relations(
    labels: AnyLabels, ref_labels: AnyLabels | None = None
) -> tuple[Tensor, Tensor]:  # two bool [N, M]
    """Who is a positive and who a negative of whom; an item is never its own positive."""
    if isinstance(labels, Related):
        same, different, _ = labels.to(ref_labels)  # type: ignore[arg-type]
        return same, different
    labels = keys_of(labels)
    columns = labels if ref_labels is None else ref_labels
    assert isinstance(columns, Tensor), "both are labels, or both are related"
    same = labels[:, None] == columns[None, :]
    if ref_labels is not None:
        return same, ~same
    different = ~same
    return same.fill_diagonal_(False), different


def relation_counts(labels: AnyLabels, dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # two [N, N]
    """The relations of a batch as numbers, 0 or 1: arithmetic with them is several times faster
    than choosing by booleans."""
    if isinstance(labels, Related):
        positive, negative = relations(labels)
        return positive.to(dtype), negative.to(dtype)
    same = torch.empty(len(labels), len(labels), dtype=dtype, device=labels.device)
    torch.eq(labels[:, None], labels, out=same)
    different = 1 - same
    return same.fill_diagonal_(0), different


def complete(positive: Tensor, negative: Tensor) -> Tensor:  # bool [N]
    """Which anchors of two masks [N, M] have both a positive and a negative. (Sums of booleans are
    several times faster than `any`.)"""
    return (positive.sum(dim=1) > 0) & (negative.sum(dim=1) > 0)


def all_pairs(positive: Tensor, negative: Tensor) -> Pairs:
    """Every pair two masks [N, M] allow."""
    return Pairs(*positive.nonzero(as_tuple=True), *negative.nonzero(as_tuple=True))


def all_triplets(positive: Tensor, negative: Tensor) -> Triplets:
    """Every triplet two masks [N, M] allow, without an [N, M, M] tensor."""
    return join(all_pairs(positive, negative))


def join(pairs: Pairs) -> Triplets:
    """Every triplet made of a positive and a negative pair with the same anchor."""
    order = torch.argsort(pairs.anchor_of_negative, stable=True)
    sorted_anchor = pairs.anchor_of_negative[order]
    anchor = pairs.anchor.contiguous()  # a column of a table warns otherwise
    start = torch.searchsorted(sorted_anchor, anchor, right=False)
    count = torch.searchsorted(sorted_anchor, anchor, right=True) - start  # [P]
    owner = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)  # [T]
    before = torch.cumsum(count, 0) - count  # triplets of earlier positive pairs
    place = torch.arange(len(owner), device=owner.device) - before[owner] + start[owner]
    return Triplets(pairs.anchor[owner], pairs.positive[owner], pairs.negative[order[place]])


def as_pairs(tuples: Pairs | Triplets) -> Pairs:
    """Each triplet gives its positive and its negative pair; repeats are kept."""
    if isinstance(tuples, Pairs):
        return tuples
    return Pairs(tuples.anchor, tuples.positive, tuples.anchor, tuples.negative)


def as_triplets(tuples: Pairs | Triplets) -> Triplets:
    """Pairs are joined on their anchor."""
    return tuples if isinstance(tuples, Triplets) else join(tuples)


def pair_masks(
    tuples: Pairs | Triplets, num_anchors: int, num_references: int, dtype: torch.dtype = torch.bool
) -> tuple[Tensor, Tensor]:  # two [N, M]
    """Where a pair occurs at least once: true, or 1."""
    pairs = as_pairs(tuples)

    def mark(anchor: Tensor, reference: Tensor) -> Tensor:
        flat = torch.zeros(num_anchors * num_references, dtype=dtype, device=anchor.device)
        flat.scatter_(0, torch.add(reference, anchor, alpha=num_references), 1)
        return flat.view(num_anchors, num_references)

    return (
        mark(pairs.anchor, pairs.positive),
        mark(pairs.anchor_of_negative, pairs.negative),
    )
