"""The abstract classes of losses, sums of losses, and checks of what a loss is called with."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unseen.core import geometry
from unseen.core.comparison import Comparison
from unseen.core.geometry import Measure, full_precision
from unseen.core.relevance import AnyLabels, Related, keys_of
from unseen.core.tuples import Pairs, Triplets, check_lengths, check_within, from_indices


class Loss(nn.Module, ABC):
    """Abstract: one scalar from embeddings and labels. PRESETS holds the values of the sources.

    `forward` has the one signature of contracts.Loss: it raises half precision, switches autocast
    off, names bare index tuples and hands a `Comparison` to `on_comparison`. A loss is either final
    or abstract: a file in this folder fills in exactly one abstract method and overrides nothing
    else.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    usual_miner: ClassVar[str | None] = None  # what `miner = "auto"` means for this loss
    # where a source paired the loss with another miner: preset -> (miner, its preset) or none
    preset_miners: ClassVar[dict[str, tuple[str, str | None] | None]] = {}

    # What holds for every batch; the contract tests read it. A loss for which it differs says so,
    # on the class or, when an argument decides, on the instance.
    scale_invariant: bool = True  # the length of an embedding does not matter
    rotation_invariant: bool = True  # nor the axes, class vectors being turned along
    one_sided: bool = False  # positives alone, or negatives alone, already have a loss
    exact_gradient: bool = True  # the gradient is the value's; not so where weights are detached
    # it has parameters of each class: where the same is more than a class it cannot be used
    needs_classes: bool = False
    # arguments that weigh terms which need no tuples: with these at 0 an empty batch costs 0
    batch_free_weights: ClassVar[tuple[str, ...]] = ()

    # it compares raw embeddings, so they are evaluated by their Euclidean distance, not by the
    # cosine
    compares_raw: bool = False

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
                return self.on_comparison(batch)
            with torch.autocast(device, enabled=False):
                return self.on_comparison(batch)
        except (IndexError, RuntimeError):
            if tuples is not None:  # the likely cause, looked at only now: it takes time
                check_within(tuples, labels, ref_labels)
            raise

    @abstractmethod
    def on_comparison(self, batch: Comparison) -> Tensor:
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

    def on_comparison(self, batch: Comparison) -> Tensor:
        return batch.matrix_loss(self.measure, self.on_matrix, getattr(self, "slope", None))

    @abstractmethod
    def on_matrix(self, sim: Tensor, pos: Tensor, neg: Tensor) -> Tensor:  # three [N, M]
        """The scalar from similarities (or distances) and the masks of the pairs that count."""


class GradedLoss(Loss):
    """Abstract: a loss of similarities and of how much the items of each pair are the same."""

    measure: Measure = staticmethod(geometry.cosine)

    def on_comparison(self, batch: Comparison) -> Tensor:
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

    def on_comparison(self, batch: Comparison) -> Tensor:
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


def penalized(loss: Tensor, embeddings: Tensor, nu: float, power: str) -> Tensor:
    """The loss and nu times the mean length of raw embeddings ("norm") or its square ("squared"):
    keeps those of un-normalised losses from growing."""
    if nu == 0:
        return loss
    squares = embeddings.square().sum(dim=1)
    lengths = squares if power == "squared" else geometry.safe_sqrt(squares)
    return loss + nu * lengths.sum() / max(1, len(lengths))


def differs_significantly(grades: Tensor, counted: Tensor) -> Tensor:  # bool [N]
    """Which anchors have a related item, and others that are less related [N, M]."""
    if not grades.shape[1]:
        return counted.new_zeros(len(grades))
    most = grades.amax(dim=1)
    least = torch.where(counted, grades, math.inf).amin(dim=1)
    return (most > 0) & (least < most)


def class_labels(labels: AnyLabels, loss: nn.Module) -> Tensor:
    """Labels that are classes, or an explanation why there are none."""
    if isinstance(labels, Related):
        raise ValueError(
            f"{type(loss).__name__} has parameters of each class, and {labels.relevance.kind} are "
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


class Call(nn.Module):
    """A function as a module, or a module that takes two tensors where three might come."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, batch: Any, labels: Tensor, tuples: None = None) -> Tensor:
        return self.call(batch, labels)


class LossSum(nn.Module):
    """The sum of losses, each times its weight: `loss=[a, (0.5, b)]` in a run.

    Tuples of a miner go to those of the losses that take them.

    Args:
        losses: modules, or functions of embeddings and labels.
        weights: one for each; none: all 1.

    Example:
        >>> import torch
        >>> from unseen.losses import ContrastiveLoss, TripletLoss
        >>> from unseen.losses.base import LossSum
        >>> both = LossSum([TripletLoss(), ContrastiveLoss()], weights=[1.0, 0.5])
        >>> both(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        tensor(0.9071)
    """

    def __init__(self, losses: Sequence[Callable[..., Any]], weights: Sequence[float] = ()) -> None:
        super().__init__()
        self.weights = list(weights) or [1.0] * len(losses)
        if len(self.weights) != len(losses):
            raise ValueError(f"{len(losses)} losses need as many weights, got {len(self.weights)}")
        self.losses = nn.ModuleList([as_module(loss, 3) for loss in losses])

    def forward(
        self, embeddings: Tensor, labels: AnyLabels, tuples: Any = None, *references: Any
    ) -> Tensor:
        total = embeddings.new_zeros(())
        for weight, loss in zip(self.weights, self.losses, strict=True):
            mined = tuples if takes_tuples(loss) else None
            total = total + weight * call_loss(loss, embeddings, labels, mined, *references)
        return total


def as_module(call: Callable[..., Any], number: int) -> nn.Module:
    """What is called with so many arguments: a module that takes them as it is, a function
    or a module that takes fewer wrapped."""
    return call if isinstance(call, nn.Module) and takes(call, number) else Call(call)


def _as_scalar(result: Any, loss: Any, embeddings: Tensor) -> Tensor:
    """The number that a loss gave; a 0 that hangs on nothing has no gradient, and needs none."""
    if isinstance(result, int | float):
        result = embeddings.new_tensor(float(result))
    if not isinstance(result, Tensor) or (result.ndim and result.shape != embeddings.shape[:1]):
        got = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(
            f"{name_of(loss)} must give one number, or one for each item, got {got} for "
            f"{len(embeddings)} items"
        )
    value = result.mean() if result.ndim else result
    if torch.is_grad_enabled() and embeddings.requires_grad and not value.requires_grad:
        if value != 0:
            raise ValueError(
                f"{name_of(loss)} gives a number without a gradient: leave out detach(), item(), "
                "numpy() and torch.no_grad() between the embeddings and its result"
            )
        return value + 0 * embeddings.sum()
    return value


def call_loss(loss: Any, embeddings: Tensor, *arguments: Any) -> Tensor:
    """The scalar of any loss, called with labels, tuples and perhaps references; losses of other
    origin may give one number for each item."""
    try:
        result = loss(embeddings, *arguments)
    except TypeError as error:
        if isinstance(loss, Loss | LossSum):
            raise
        raise _other_arguments(loss, f" ({error})") from error
    return _as_scalar(result, loss, embeddings)


def _other_arguments(loss: Any, why: str = "") -> ValueError:
    call = getattr(loss, "call", loss)
    return ValueError(
        f"{name_of(loss)} cannot be called with (embeddings, labels, tuples=None){why}; it takes "
        f"{inspect.signature(getattr(call, 'forward', call))}: wrap it in a function of embeddings "
        "and labels"
    )


def takes(call: Callable[..., Any], number: int) -> bool:
    """Whether a call takes so many arguments by place."""
    try:
        inspect.signature(getattr(call, "forward", call)).bind(*[None] * number)
    except TypeError:
        return False
    return True


def takes_tuples(loss: Any) -> bool:
    """Whether a loss takes the tuples of a miner."""
    return not isinstance(loss, LabelLoss | Call) and takes(loss, 3)


def check_takes_tuples(loss: Any, has_miner: bool) -> None:
    """Stops a loss that cannot be called, and a miner before one that takes no tuples."""
    name = name_of(loss)
    if not takes(loss, 2) and not takes(loss, 3):
        raise _other_arguments(loss)
    if has_miner and isinstance(loss, LabelLoss):
        raise ValueError(
            f"{name} compares with class parameters and takes no tuples: leave the "
            "miner out (miner=none), or choose a loss on pairs or triplets"
        )
    if has_miner and not takes_tuples(loss):
        raise ValueError(
            f"{name} takes embeddings and labels alone: leave the miner out (miner=none), "
            "or give it a third argument, tuples=None"
        )


def name_of(loss: Any) -> str:
    call = getattr(loss, "call", loss)
    return getattr(call, "__name__", type(call).__name__)
