"""The door every loss shares, and the two abstract shapes most losses have.

`Loss.forward` has the one signature of contracts.Loss: it raises half precision, switches autocast
off, names bare index tuples and hands a `Comparison` to the loss's own `price`. A loss is either
final or abstract: a file in this folder fills in exactly one abstract method and overrides nothing
else.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen import geometry
from unseen.derivatives import Back, Written, differentiable
from unseen.geometry import Measure, full_precision
from unseen.hinges import triplet_mean, triplet_mean_slope
from unseen.tuples import (
    Pairs,
    Triplets,
    all_triplets,
    as_pairs,
    as_triplets,
    check_lengths,
    check_within,
    from_indices,
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
    labels: Tensor  # [N]
    tuples: Pairs | Triplets | None  # None: every tuple counts
    ref_embeddings: Tensor | None  # None: the batch is its own reference
    ref_labels: Tensor | None

    def matrix(self, measure: Measure) -> Tensor:  # [N, M]
        return measure(self.embeddings, self.ref_embeddings)

    def priced(
        self,
        measure: Measure,
        formula: Callable[[Tensor, Tensor, Tensor], Tensor],
        slope: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
        own: Written | None = None,
    ) -> Tensor:
        """formula(matrix, pos, neg), of the measure and two masks. Where the batch is compared with
        itself, matrix and price are one function of the embeddings if `slope`, from the matrix and
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

        price: Tensor = differentiable(plain, written, self.embeddings)
        return price

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
        self._look_up(reference)
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

    def _numbers(self) -> tuple[Tensor, Tensor]:  # two [N, N]
        """The same as numbers, without references."""
        if self.tuples is None:
            return relation_counts(self.labels, self.embeddings.dtype)
        return self._masks_of(as_pairs(self.tuples), self.embeddings.dtype)

    def _masks_of(self, pairs: Pairs, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        self._look_up(pairs.positive)
        self._look_up(pairs.negative)
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
        return self.priced(measure, formula, slope, own)

    def _look_up(self, reference: Tensor) -> None:
        """Before a pair becomes a place in a flattened matrix, where an index that is too large
        would mean the next anchor's pair: reading the labels raises, at once on the CPU, and on a
        GPU by an assertion of its own that nobody waits for. Anchors outside leave the matrix."""
        labels = self.labels if self.ref_labels is None else self.ref_labels
        labels.index_select(0, reference)

    def _of_pairs(self, measure: Measure, pairs: Pairs) -> tuple[Tensor, Tensor]:  # [P], [Q]
        anchor = torch.cat([pairs.anchor, pairs.anchor_of_negative])
        values = self.values(measure, anchor, torch.cat([pairs.positive, pairs.negative]))
        return values[: len(pairs.anchor)], values[len(pairs.anchor) :]

    def scaled(self, factor: float) -> "Comparison":
        """The same with longer or shorter embeddings."""
        references = None if self.ref_embeddings is None else factor * self.ref_embeddings
        return replace(self, embeddings=factor * self.embeddings, ref_embeddings=references)

    def _shape(self) -> tuple[int, int]:
        references = self.labels if self.ref_labels is None else self.ref_labels
        return len(self.labels), len(references)


class Loss(nn.Module, ABC):
    """Abstract: one scalar from embeddings and labels. PRESETS holds the values of the sources."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    usual_miner: ClassVar[str | None] = None  # what `miner = "auto"` means for this loss
    # where a source paired the loss with another miner: preset -> (miner, its preset) or none
    preset_miners: ClassVar[dict[str, tuple[str, str | None] | None]] = {}

    # What holds for every batch; the contract tests read it. A loss for which it differs says so,
    # on the class or, when an argument decides, on the instance.
    scale_invariant: bool = True  # the length of an embedding does not matter
    rotation_invariant: bool = True  # nor the axes, class vectors being turned along
    one_sided: bool = False  # positives alone, or negatives alone, already have a price
    exact_gradient: bool = True  # the gradient is the value's; not so where weights are detached
    # arguments that weigh terms which need no tuples: with these at 0 an empty batch costs 0
    batch_free_weights: ClassVar[tuple[str, ...]] = ()

    # it compares raw embeddings, so they are judged by their Euclidean distance, not by the cosine
    judged_raw: bool = False

    # of the loss's parameters, whatever the run's; None: the run's. A rate of Adam or AdamW
    own_lr: float | None = None
    # decay would pull proxies and boundaries to 0; None: as the run decays the network
    own_weight_decay: float | None = 0.0

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        tuples: Pairs | Triplets | tuple[Tensor, ...] | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        check_batch(embeddings, labels, ref_embeddings, ref_labels)
        if tuples is not None:
            tuples = from_indices(tuples)
            check_lengths(tuples)
        references = None if ref_embeddings is None else full_precision(ref_embeddings)
        batch = Comparison(full_precision(embeddings), labels, tuples, references, ref_labels)
        device = embeddings.device.type
        try:
            if not torch.is_autocast_enabled(device):
                return self.price(batch)
            with torch.autocast(device, enabled=False):
                return self.price(batch)
        except (IndexError, RuntimeError):
            if tuples is not None:  # the likely cause, looked at only now: it takes time
                check_within(tuples, labels, ref_labels)
            raise

    @abstractmethod
    def price(self, batch: Comparison) -> Tensor:
        """The scalar; 0, attached to the graph, when nothing counts."""

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups of the loss's own parameters, given the run's learning rate."""
        own = list(self.parameters())
        if not own:
            return []
        group = {"params": own, "lr": lr if self.own_lr is None else self.own_lr}
        if self.own_weight_decay is None:  # the optimiser fills in its own
            return [group]
        return [group | {"weight_decay": self.own_weight_decay}]


class MatrixLoss(Loss):
    """Abstract: a loss of one matrix between anchors and references and two masks on it."""

    measure: Measure = staticmethod(geometry.cosine)

    def price(self, batch: Comparison) -> Tensor:
        return batch.priced(self.measure, self.on_matrix, getattr(self, "slope", None))

    @abstractmethod
    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        """The scalar from similarities (or distances) and the masks of the pairs that count."""


class LabelLoss(Loss):
    """Abstract: a loss of embeddings and class labels alone (proxies, classifiers).

    lr: the class parameters' own learning rate; None: the run's.
    """

    def __init__(self, num_classes: int, embedding_size: int, lr: float | None = None) -> None:
        super().__init__()
        if num_classes < 1 or embedding_size < 1:
            raise ValueError(
                "num_classes and embedding_size must be at least 1, "
                f"got num_classes={num_classes}, embedding_size={embedding_size}"
            )
        if lr is not None and lr < 0:
            raise ValueError(f"lr must be None or not negative, got {lr}")
        self.num_classes, self.embedding_size, self.own_lr = num_classes, embedding_size, lr

    def price(self, batch: Comparison) -> Tensor:
        if batch.tuples is not None or batch.ref_embeddings is not None:
            raise ValueError(
                f"{type(self).__name__} compares embeddings with class parameters: it takes "
                "neither tuples nor references. Remove the miner or memory, or choose a pair loss."
            )
        if batch.embeddings.shape[1] != self.embedding_size:
            raise ValueError(
                f"{type(self).__name__} was made for embedding_size={self.embedding_size}, "
                f"got embeddings of {batch.embeddings.shape[1]} dimensions"
            )
        if len(batch.labels) == 0:
            return batch.embeddings.sum()
        lowest, highest = (int(end) for end in batch.labels.aminmax())
        if lowest < 0 or highest >= self.num_classes:
            raise wrong_labels(batch.labels, self.num_classes)
        return self.on_labels(batch.embeddings, batch.labels)

    @abstractmethod
    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        """The scalar from embeddings and 0..C-1 labels."""


def penalty(embeddings: Tensor, nu: float, power: str) -> Tensor | float:
    """nu times the mean length of raw embeddings ("norm") or its square ("squared"): keeps those of
    un-normalised losses from growing."""
    if nu == 0:
        return 0.0
    squares = embeddings.square().sum(dim=1)
    lengths = squares if power == "squared" else geometry.safe_sqrt(squares)
    return nu * lengths.sum() / max(1, len(lengths))


def wrong_labels(labels: Tensor, num_classes: int) -> ValueError:
    """What to say of labels that have no parameter."""
    low, high = (int(end) for end in labels.aminmax())
    return ValueError(
        f"labels must be 0 to {num_classes - 1} with num_classes={num_classes}, got {low} to {high}"
    )


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """Stops an option that does not exist."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}; got {value!r}")


def check_positive(**values: float) -> None:
    """Stops values that make sense above 0 only."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a number above 0, got {value}")


def check_not_negative(**values: float) -> None:
    """Stops values that make sense from 0 on only."""
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number from 0 on, got {value}")


def check_batch(
    embeddings: Tensor, labels: Tensor, ref_embeddings: Tensor | None, ref_labels: Tensor | None
) -> None:
    """Stops shapes and types that would broadcast or compare silently into nonsense."""
    if embeddings.ndim != 2 or labels.ndim != 1 or len(embeddings) != len(labels):
        raise ValueError(
            "embeddings must be [N, D] and labels [N], "
            f"got {tuple(embeddings.shape)} and {tuple(labels.shape)}"
        )
    if labels.is_floating_point():
        raise ValueError(f"labels must be integers, got {labels.dtype}: use labels.long()")
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("ref_embeddings and ref_labels go together: give both or neither")
    if ref_embeddings is not None and ref_embeddings.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"references have {ref_embeddings.shape[1]} dimensions, "
            f"the batch has {embeddings.shape[1]}"
        )
