"""The door every loss shares, and the two abstract shapes most losses have.

`Loss.forward` has the one signature of contracts.Loss: it raises half precision, switches autocast
off, names bare index tuples and hands a `Comparison` to the loss's own `price`. A loss is either
final or abstract: a file in this folder fills in exactly one abstract method and overrides nothing
else.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen import geometry
from unseen.comparison import Comparison
from unseen.geometry import Measure, full_precision
from unseen.relevance import AnyLabels, Related, keys_of
from unseen.tuples import (
    Pairs,
    Triplets,
    check_lengths,
    check_within,
    from_indices,
)


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
    # it has parameters of each class: where the same is more than a class it cannot be used
    needs_classes: bool = False
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
        labels: AnyLabels,
        tuples: Pairs | Triplets | tuple[Tensor, ...] | None = None,
        ref_embeddings: Tensor | None = None,
        ref_labels: AnyLabels | None = None,
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


class GradedLoss(Loss):
    """Abstract: a loss of similarities and of how much the items of each pair are the same."""

    measure: Measure = staticmethod(geometry.cosine)

    def price(self, batch: Comparison) -> Tensor:
        return self.on_grades(batch.matrix(self.measure), *batch.grades())

    @abstractmethod
    def on_grades(self, sim: Tensor, grades: Tensor, counted: Tensor) -> Tensor:  # three [N, M]
        """The scalar from similarities (or distances), grades 0 to 1, and which pairs count."""


class LabelLoss(Loss):
    """Abstract: a loss of embeddings and class labels alone (proxies, classifiers).

    lr: the class parameters' own learning rate; None: the run's.
    """

    needs_classes = True

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
        labels = class_labels(batch.labels, self)
        lowest, highest = (int(end) for end in labels.aminmax())
        if lowest < 0 or highest >= self.num_classes:
            raise wrong_labels(labels, self.num_classes)
        return self.on_labels(batch.embeddings, labels)

    @abstractmethod
    def on_labels(self, embeddings: Tensor, labels: Tensor) -> Tensor:  # [N, D], [N]
        """The scalar from embeddings and 0..C-1 labels."""


def penalised(price: Tensor, embeddings: Tensor, nu: float, power: str) -> Tensor:
    """The price and nu times the mean length of raw embeddings ("norm") or its square ("squared"):
    keeps those of un-normalised losses from growing."""
    if nu == 0:
        return price
    squares = embeddings.square().sum(dim=1)
    lengths = squares if power == "squared" else geometry.safe_sqrt(squares)
    return price + nu * lengths.sum() / max(1, len(lengths))


def told_apart(grades: Tensor, counted: Tensor) -> Tensor:  # bool [N]
    """Which anchors have a related item, and others that are less related [N, M]."""
    if not grades.shape[1]:
        return counted.new_zeros(len(grades))
    most = grades.amax(dim=1)
    least = torch.where(counted, grades, math.inf).amin(dim=1)
    return (most > 0) & (least < most)


def class_labels(labels: AnyLabels, part: nn.Module) -> Tensor:
    """Labels that are classes, or an explanation why there are none."""
    if isinstance(labels, Related):
        raise ValueError(
            f"{type(part).__name__} has parameters of each class, and {labels.relevance.kind} are "
            "no classes: use a loss on pairs or triplets, such as multi_similarity"
        )
    return labels


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
    embeddings: Tensor,
    labels: AnyLabels,
    ref_embeddings: Tensor | None,
    ref_labels: AnyLabels | None,
) -> None:
    """Stops shapes and types that would broadcast or compare silently into nonsense."""
    if not isinstance(embeddings, Tensor):
        raise ValueError(f"embeddings must be a tensor [N, D], got {type(embeddings).__name__}")
    is_related, labels = isinstance(labels, Related), keys_of(labels)
    if embeddings.ndim != 2 or labels.ndim != 1 or len(embeddings) != len(labels):
        raise ValueError(
            "embeddings must be [N, D] and labels [N], "
            f"got {tuple(embeddings.shape)} and {tuple(labels.shape)}"
        )
    if labels.is_floating_point():
        raise ValueError(f"labels must be integers, got {labels.dtype}: use labels.long()")
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("ref_embeddings and ref_labels go together: give both or neither")
    if ref_labels is not None and isinstance(ref_labels, Related) != is_related:
        raise ValueError("labels and ref_labels must both be tensors, or both be of a relevance")
    if ref_embeddings is not None and ref_embeddings.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"references have {ref_embeddings.shape[1]} dimensions, "
            f"the batch has {embeddings.shape[1]}"
        )
