"""What a loss compares: anchors with references, by labels or relevance, some tuples or all.

From a `Comparison` a loss takes what its formula wants: a matrix with two masks, lists of pairs or
triplets, or grades.
"""

from __future__ import annotations  # so that torch.compile sees through inner functions

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core import geometry
from unseen.core.derivatives import Back, Written, differentiable
from unseen.core.geometry import Measure
from unseen.core.hinges import triplet_mean, triplet_mean_slope
from unseen.core.relevance import AnyLabels, Related, differ, keys_of
from unseen.core.tuples import (
    Pairs,
    Triplets,
    all_triplets,
    as_pairs,
    as_triplets,
    check_within,
    pair_masks,
    relation_counts,
    relations,
)

_DENSE = 16  # one value by itself costs about as much as so many entries of a whole matrix


class Side(NamedTuple):
    """Pairs of one kind: all of them as a matrix, or the given ones as a list."""

    values: Tensor  # [N, M] or [P]
    counts: Tensor  # the same shape: how often each pair counts
    anchor: Tensor  # [N, 1] or [P]: whose pair it is

    def per_anchor(self, num_anchors: int) -> Tensor:  # [N]
        """How many pairs each anchor has."""
        if self.counts.ndim == 2:
            return self.counts.sum(dim=1)
        return self.counts.new_zeros(num_anchors).index_add_(0, self.anchor, self.counts)


@dataclass(frozen=True)
class Comparison:
    """Anchors [N, D] and the references [M, D] their positives and negatives come from."""

    embeddings: Tensor  # [N, D]
    labels: AnyLabels  # [N]
    tuples: Pairs | Triplets | None  # None: every tuple counts
    ref_embeddings: Tensor | None  # None: the batch is its own reference
    ref_labels: AnyLabels | None

    def matrix(self, measure: Measure) -> Tensor:  # [N, M]
        return measure(self.embeddings, self.ref_embeddings)

    def matrix_loss(
        self,
        measure: Measure,
        formula: Callable[[Tensor, Tensor, Tensor], Tensor],
        slope: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
        own: Written | None = None,
    ) -> Tensor:
        """formula(matrix, pos, neg), of the measure and two masks. Where the batch is compared with
        itself, matrix and loss are one function of the embeddings if `slope`, from the matrix and
        the masks as numbers (0 or 1), gives the same value and its gradient by the matrix. `own`:
        the matrix with its gradient, of a measure that geometry.OWN does not have."""

        def plain(embeddings: Tensor) -> Tensor:
            return formula(measure(embeddings, self.ref_embeddings), *self.masks())

        own = own or geometry.OWN.get(measure)
        if slope is None or own is None or self.ref_embeddings is not None or not len(self.labels):
            return plain(self.embeddings)
        pos, neg = self._numbers()

        def written(embeddings: Tensor) -> tuple[Tensor, Back]:
            matrix, back = own(embeddings)
            value, on_matrix = slope(matrix, pos, neg)
            return value, lambda grad: back(on_matrix * grad)

        loss: Tensor = differentiable(plain, written, self.embeddings)
        return loss

    def values(self, measure: Measure, anchor: Tensor, reference: Tensor) -> Tensor:  # [P]
        """The measure between listed anchors and references only."""
        rows, columns = self._shape()
        references = self.embeddings if self.ref_embeddings is None else self.ref_embeddings
        if _DENSE * len(anchor) <= rows * columns:

            def formula(x: Tensor, y: Tensor) -> Tensor:
                return measure(x.index_select(0, anchor), y.index_select(0, reference), paired=True)

            written = geometry.listed(measure, anchor, reference)
            if written is None or self.ref_embeddings is not None:
                return formula(self.embeddings, references)
            values: Tensor = differentiable(lambda x: formula(x, x), written, self.embeddings)
            return values
        self._check_range(reference)
        return (
            self.matrix(measure)
            .flatten()
            .index_select(0, torch.add(reference, anchor, alpha=columns))
        )

    def sides(self, measure: Measure, of_triplets: bool = False) -> tuple[Side, Side]:
        """The positive and the negative pairs that count; `of_triplets`: as often as the triplets
        hold them, the given ones or all that the pairs make."""
        if self.tuples is None:
            matrix, (positive, negative) = self.matrix(measure), self.pair_counts()
            if of_triplets:
                num_positive, num_negative = positive.sum(dim=1), negative.sum(dim=1)
                positive, negative = (
                    positive * num_negative[:, None],
                    negative * num_positive[:, None],
                )
            row = torch.arange(len(matrix), device=matrix.device)[:, None]
            return Side(matrix, positive, row), Side(matrix, negative, row)
        pairs = as_pairs(self.tuples)
        near, far = self._of_pairs(measure, pairs)
        positive, negative = torch.ones_like(near), torch.ones_like(far)
        if of_triplets and isinstance(self.tuples, Pairs):
            num = len(self.labels)
            num_positive = torch.bincount(pairs.anchor, minlength=num)
            num_negative = torch.bincount(pairs.anchor_of_negative, minlength=num)
            positive = positive * num_negative[pairs.anchor]
            negative = negative * num_positive[pairs.anchor_of_negative]
        return Side(near, positive, pairs.anchor), Side(far, negative, pairs.anchor_of_negative)

    def masks(self) -> tuple[Tensor, Tensor]:  # two bool [N, M]
        """Which positive and which negative pairs count."""
        if self.tuples is None:
            return relations(self.labels, self.ref_labels)
        return self._masks_of(as_pairs(self.tuples), torch.bool)

    def grades(self) -> tuple[Tensor, Tensor]:  # two [N, M]
        """How much the items of each pair are the same, 0 to 1, and which pairs count: where there
        are labels alone, positives are 1 and negatives 0."""
        if isinstance(self.labels, Related):
            same, different, grade = self.labels.to(self.ref_labels)  # type: ignore[arg-type]
        else:
            same, different = relations(self.labels, self.ref_labels)
            grade = same
        if self.tuples is not None:
            same, different = self._masks_of(as_pairs(self.tuples), torch.bool)
        counted = same | different
        if self.ref_labels is None:  # nobody is graded against himself, as the rho switch would
            counted.fill_diagonal_(False)
        return grade.to(self.embeddings.dtype) * counted, counted

    def different(self, anchor: Tensor, reference: Tensor | None = None) -> Tensor:  # bool [A, R]
        """Which of some references (None: of all) are negatives of some anchors."""
        references = self.labels if self.ref_labels is None else self.ref_labels
        return differ(
            self.labels[anchor], references if reference is None else references[reference]
        )

    def _numbers(self) -> tuple[Tensor, Tensor]:  # two [N, N]
        """The same as numbers, without references."""
        if self.tuples is None:
            return relation_counts(self.labels, self.embeddings.dtype)
        return self._masks_of(as_pairs(self.tuples), self.embeddings.dtype)

    def _masks_of(self, pairs: Pairs, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        self._check_range(pairs.positive)
        self._check_range(pairs.negative)
        return pair_masks(pairs, *self._shape(), dtype)

    def pair_counts(self) -> tuple[Tensor, Tensor]:  # two [N, M]
        """How often each pair counts without tuples: once, or not at all."""
        positive, negative = relations(self.labels, self.ref_labels)
        return positive.to(self.embeddings.dtype), negative.to(self.embeddings.dtype)

    def positive_pairs(self) -> tuple[Tensor, Tensor]:  # [P] anchors, [P] their positives
        """The positive pairs as lists; a pair of a triplet counts as often as it is named."""
        if self.tuples is None:
            anchor, positive = relations(self.labels, self.ref_labels)[0].nonzero(as_tuple=True)
            return anchor, positive
        pairs = as_pairs(self.tuples)
        return pairs.anchor, pairs.positive

    def triplets(self) -> Triplets:
        """The triplets as lists. Long without tuples: prefer a form that sums over masks."""
        if self.tuples is None:
            return all_triplets(*relations(self.labels, self.ref_labels))
        if isinstance(self.tuples, Pairs):  # those that no other pair meets would go unread
            check_within(self.tuples, self.labels, self.ref_labels)
        return as_triplets(self.tuples)

    def triplet_sides(self, measure: Measure) -> tuple[Tensor, Tensor]:  # two [T]
        """The measure of the positive and of the negative pair of each triplet."""
        return self._of_pairs(measure, as_pairs(self.triplets()))

    def triplet_mean(
        self,
        measure: Measure,
        margin: float | None,
        of_active: bool = False,
        own: Written | None = None,
    ) -> Tensor:
        """The mean of [dist[a,p] - dist[a,n] + margin]+ over the triplets, dist being the measure;
        `of_active`: over those above 0. Without a margin of log(1 + exp(dist[a,p] - dist[a,n]))."""
        if self.tuples is not None:
            near, far = self.triplet_sides(measure)
            gaps = near - far
            terms = F.softplus(gaps) if margin is None else (gaps + margin).clamp(min=0)  # [T]
            num = (terms > 0).sum().clamp(min=1) if of_active else max(1, len(terms))
            return terms.sum() / num
        formula = partial(triplet_mean, margin=margin, of_active=of_active)
        slope = partial(triplet_mean_slope, margin=margin, of_active=of_active)
        return self.matrix_loss(measure, formula, slope, own)

    def num_triplets(self) -> int:
        """Those handed over, or all of the batch."""
        if self.tuples is not None:
            return len(self.triplets().anchor)
        pos, neg = self.masks()
        return int((pos.sum(dim=1) * neg.sum(dim=1)).sum())

    def _check_range(self, reference: Tensor) -> None:
        """Before a pair becomes a place in a flattened matrix, where an index that is too large
        would mean the next anchor's pair: reading the labels raises, at once on the CPU, and on a
        GPU by an assertion of its own that nobody waits for. Anchors outside leave the matrix."""
        labels = self.labels if self.ref_labels is None else self.ref_labels
        keys_of(labels).index_select(0, reference)

    def _of_pairs(self, measure: Measure, pairs: Pairs) -> tuple[Tensor, Tensor]:  # [P], [Q]
        anchor = torch.cat([pairs.anchor, pairs.anchor_of_negative])
        values = self.values(measure, anchor, torch.cat([pairs.positive, pairs.negative]))
        return values[: len(pairs.anchor)], values[len(pairs.anchor) :]

    def scaled(self, factor: float) -> Comparison:
        """The same with longer or shorter embeddings."""
        references = None if self.ref_embeddings is None else factor * self.ref_embeddings
        return replace(self, embeddings=factor * self.embeddings, ref_embeddings=references)

    def _shape(self) -> tuple[int, int]:
        references = self.labels if self.ref_labels is None else self.ref_labels
        return len(self.labels), len(references)
