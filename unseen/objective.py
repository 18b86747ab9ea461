"""What training minimises: (filter ->) miner -> loss + weighted regularizers, as named scalars.

The objective counts tuples and collects what regularizers report, so that formulas need not log.

The learners of an ensemble (`Output.heads`) are mined and priced one by one, and their mean is the
loss: losses sum over the batch, so learners in one batch would be compared with each other.
(HORDE's code counts the active pairs of all learners together; here each learner has its own.)
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unseen import catalogue
from unseen.contracts import Loss, Miner, Output, Regularizer
from unseen.losses.base import LabelLoss
from unseen.losses.base import Loss as OurLoss
from unseen.memory import CrossBatchMemory
from unseen.miners.base import Miner as OurMiner
from unseen.nested import Nested
from unseen.regularizers.base import Regularizer as OurRegularizer
from unseen.relevance import CLASSES, KINDS, AnyLabels, Related, Relevance
from unseen.tuples import Pairs, Triplets, from_indices

Weighted = tuple[str, float, Regularizer]  # name, weight, regularizer
AnyLoss = Loss | Callable[[Tensor, Tensor], Tensor]  # or a plain function of two tensors


class MinedObjective(nn.Module):
    """`total` is the loss, that against the memory and each regularizer, times their weights."""

    def __init__(
        self,
        loss: AnyLoss,
        miner: Miner | None = None,
        regularizers: Sequence[Weighted] = (),
        memory: CrossBatchMemory | None = None,
        relevance: Relevance | None = None,
        label_filter: nn.Module | None = None,
    ) -> None:
        """relevance: who is the same as whom, where it is more than a class. label_filter: which
        items of a batch count (`prism.py`)."""
        super().__init__()
        names = [name for name, _, _ in regularizers]
        if len(set(names)) < len(names):
            raise ValueError(f"each regularizer needs a name of its own, got {', '.join(names)}")
        for each in _losses(loss):
            check_takes_tuples(each, miner)
            if memory is not None:
                check_for_memory(each, miner)
        relevance = compared_by(relevance, loss)
        parts = [part for _, _, part in regularizers]
        if relevance is not None:
            check_takes_relevance(relevance, loss, miner, parts, label_filter)
        self.relevance, self.label_filter = relevance, label_filter
        # parts that hear of classes alone, where they are levels to others
        self._by_class = {name for name, _, part in regularizers if kinds_taken(part) == CLASSES}
        self._mines_by_class = miner is not None and kinds_taken(miner) == CLASSES
        self.loss, self.miner, self.memory = as_module(loss, 3), miner, memory
        self.regularizers = nn.ModuleDict({n: as_module(part, 2) for n, _, part in regularizers})
        self.weights = {name: weight for name, weight, _ in regularizers}
        self._drawing = {name: p for name, p in self.named_modules() if hasattr(p, "draws")}

    def forward(
        self, output: Output, labels: Tensor, indices: Tensor | None = None
    ) -> dict[str, Tensor]:
        return self.price(output, self.local_halves(output), labels, indices)

    def local_halves(self, output: Output) -> dict[str, Tensor]:
        """Rows [N, ...] of the regularizers that read maps, which are never sent to another
        process: each computes the rows of its own pictures."""
        with torch.autocast(output.embeddings.device.type, enabled=False):
            return {name: part.local_half(output) for name, part in self._on_maps().items()}

    def price(
        self,
        output: Output,
        halves: Mapping[str, Tensor],
        classes: Tensor,
        indices: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The terms of a batch, given the local halves of all its pictures; `indices`, their
        positions in the data set, are looked at where the same is more than a class."""
        if self.label_filter is None:
            return self._price(output, halves, classes, indices)
        stays = self.label_filter(output.embeddings, classes)
        halves = {name: rows[stays] for name, rows in halves.items()}
        indices = None if indices is None else indices[stays.to(indices.device)]
        terms = self._price(_of(output, stays), halves, classes[stays], indices)
        return terms | {"left_out": 1 - stays.float().mean()}

    def _price(
        self,
        output: Output,
        halves: Mapping[str, Tensor],
        classes: Tensor,
        indices: Tensor | None,
    ) -> dict[str, Tensor]:
        """Of the items that count."""
        keys, labels = self._labels(classes, indices)
        learners = self._learners(output.embeddings)
        if output.heads is not None:
            learners = [(self.loss, embeddings) for embeddings in output.heads.unbind(1)]
        mined = [self._mined(embeddings, labels) for _, embeddings in learners]
        found = zip(learners, mined, strict=True)
        terms = {"loss": self._mean([loss(x, labels, tuples) for (loss, x), tuples in found])}
        total = terms["loss"]
        if self.memory is not None:
            terms["memory"] = self._against(self.memory, output.embeddings, keys)
            total = total + self.memory.weight * terms["memory"]
        regularizers: dict[str, Any] = dict(self.regularizers.items())
        for name, regularizer in regularizers.items():
            heard = classes if name in self._by_class else labels
            if name in halves:
                terms[name] = regularizer.global_half(halves[name], heard)
            else:
                terms[name] = regularizer(output, heard)
            total = total + self.weights[name] * terms[name]
            report: Mapping[str, Tensor] = getattr(regularizer, "report", dict)()
            terms |= {f"{name}.{key}": value for key, value in report.items()}
        return {"total": total, **terms, **counts(mined)}

    def _labels(self, classes: Tensor, indices: Tensor | None) -> tuple[Tensor, AnyLabels]:
        """One integer for each picture, and what the parts are to take for its label."""
        if self.relevance is None:
            return classes, classes
        if indices is None:
            raise ValueError(f"{self.relevance.kind} are of items: the objective needs indices")
        keys = indices.to(classes.device)
        return keys, self.relevance.of(keys)

    def _mined(self, *given: Any) -> Pairs | Triplets | None:
        """The tuples of one learner, given its embeddings, labels and references; None where the
        loss is to take all there are."""
        if self.miner is None:
            return None
        if self._mines_by_class:
            given = tuple(g.classes if isinstance(g, Related) else g for g in given)
        return from_indices(self.miner(*given))

    def _learners(self, embeddings: Tensor) -> list[tuple[nn.Module, Tensor]]:
        """Which loss prices which values: one all of them, nested ones their prefixes."""
        if isinstance(self.loss, Nested):
            return self.loss.prefixes(embeddings)
        return [(self.loss, embeddings)]

    def _mean(self, prices: list[Tensor]) -> Tensor:
        if isinstance(self.loss, Nested):
            return self.loss.mean(prices)
        return torch.stack(prices).mean() if len(prices) > 1 else prices[0]

    def _against(self, memory: CrossBatchMemory, embeddings: Tensor, keys: Tensor) -> Tensor:
        """The loss against earlier batches; then the memory takes this one up."""
        price = embeddings.new_zeros(())
        if len(memory):
            rows, stored = memory.references()
            labels, others = (self._labels(of, of)[1] for of in (keys, stored))
            prices = []
            for loss, x in self._learners(embeddings):
                references = (rows[:, : x.shape[1]], others)
                prices.append(loss(x, labels, self._mined(x, labels, *references), *references))
            price = self._mean(prices)
        memory.store(embeddings, keys)
        return price

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups of the loss's and the regularizers' own parameters."""
        groups: list[dict[str, Any]] = []
        parts: list[Any] = [*_losses(self.loss), *self.regularizers.values()]
        for part in parts:
            own = list(part.parameters())
            if hasattr(part, "parameter_groups"):
                groups += part.parameter_groups(lr)
            elif own:  # a part of another library: the run's rate, no decay
                groups.append({"params": own, "lr": lr, "weight_decay": 0.0})
        return groups

    def local_parameters(self) -> list[nn.Parameter]:
        """Those behind the local halves: several processes each hold part of their gradient."""
        return [own for part in self._on_maps().values() for own in part.local_parameters()]

    def divided(self) -> dict[str, slice]:
        """Parameters of which this process holds some rows only, by name, and which rows."""
        parts: dict[str, Any] = {name: part for name, part in self.named_modules() if name}
        return {
            f"{prefix}.{name}": rows
            for prefix, part in parts.items()
            if hasattr(part, "divided")
            for name, rows in part.divided().items()
        }

    def own_part(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of a state with all rows that of this process."""
        divided = self.divided()
        return {n: t[divided[n]] if n in divided else t for n, t in state.items()}

    def _on_maps(self) -> dict[str, Any]:
        parts: dict[str, Any] = dict(self.regularizers.items())
        return {name: part for name, part in parts.items() if hasattr(part, "local_half")}

    @property
    def wants_pooled(self) -> bool:
        """Whether a regularizer waits for `prepare`."""
        return any(not getattr(part, "is_prepared", True) for part in self.regularizers.values())

    def prepare(self, pooled: Tensor, labels: Tensor) -> None:
        """Once before the first step: the initial network's descriptors [n, P] of all training
        items and their classes 0..C-1 [n]."""
        parts: list[Any] = list(self.regularizers.values())
        for part in parts:
            if not getattr(part, "is_prepared", True):
                part.prepare(pooled, labels)

    def miner_state(self) -> dict[str, Any]:
        """Where the draws of the miners stand; empty for miners that keep none."""
        return {name: miner.state_dict() for name, miner in self._miners().items()}

    def load_miner_state(self, state: Mapping[str, Any]) -> None:
        miners = self._miners()
        for name, place in state.items():
            miners[name].load_state_dict(place)

    def _miners(self) -> dict[str, Any]:
        """The loss's miner and those inside regularizers, as far as they have a state, and what
        draws class centres."""
        inner = {name: getattr(part, "miner", None) for name, part in self.regularizers.items()}
        found: dict[str, Any] = {"loss": self.miner, **inner, **self._drawing}
        return {name: miner for name, miner in found.items() if hasattr(miner, "state_dict")}


def _of(output: Output, stays: Tensor) -> Output:
    """Some items of a batch; stays: bool [N]."""
    maps, heads = output.maps, output.heads
    return Output(
        output.embeddings[stays],
        output.pooled[stays],
        None if maps is None else maps[stays],
        None if heads is None else heads[stays],
    )


class Call(nn.Module):
    """A function as a part, or a module that takes two tensors where three might come."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, given: Any, labels: Tensor, tuples: None = None) -> Tensor:
        return self.call(given, labels)


def as_module(call: Callable[..., Tensor], number: int) -> nn.Module:
    """A part that is called with so many arguments: a module that takes them as it is, a function
    or a module that takes fewer wrapped."""
    return call if isinstance(call, nn.Module) and _takes(call, number) else Call(call)


def check_takes_tuples(loss: AnyLoss, miner: Miner | None) -> None:
    """Stops a miner before a loss that would not hear of what it finds."""
    if miner is not None and isinstance(loss, LabelLoss):
        raise ValueError(
            f"{type(loss).__name__} compares with class parameters and takes no tuples: leave the "
            "miner out (miner=none), or choose a loss on pairs or triplets"
        )
    if miner is not None and not _takes(loss, 3):
        raise ValueError(
            f"{_name(loss)} takes embeddings and labels alone: leave the miner out (miner=none), "
            "or give it a third argument, tuples=None"
        )


def compared_by(relevance: Relevance | None, loss: Any) -> Relevance | None:
    """None where classes are all a loss hears of: labels are faster."""
    if relevance is None or relevance.kind == "labels":
        return None
    is_used = any(hasattr(each, "on_grades") for each in _losses(loss))
    return relevance if is_used or not relevance.has_classes else None


def check_takes_relevance(
    relevance: Relevance,
    loss: Any,
    miner: Any,
    regularizers: Sequence[Any],
    label_filter: nn.Module | None = None,
) -> None:
    """Stops parts that cannot compare items by what the relevance says of them."""
    if label_filter is not None and not relevance.has_classes:
        raise ValueError(
            f"label_filter doubts the class of an item, and {relevance.kind} are no classes: use "
            "label_filter=none"
        )
    losses = [*_losses(loss), *(own for part in regularizers for own in _inner_losses(part))]
    given: dict[str, Sequence[Any]] = {"losses": losses, "regularizers": regularizers}
    given["miners"] = [] if miner is None else [miner]
    if miner is not None and kinds_taken(miner) == CLASSES and relevance.classes is None:
        raise ValueError(
            f"{_name(miner)} hears of classes alone: relevance.divided(classes) says which"
        )
    for folder, parts in given.items():
        for part in parts:
            if relevance.kind not in kinds_taken(part):
                raise ValueError(_refusal(relevance, part, folder))


def kinds_taken(part: Any) -> tuple[str, ...]:
    """What a loss, miner or regularizer, or its class, can take for "the same": it is asked what it
    has, a regularizer also what its losses and its miner take. Parts from outside get classes;
    levels are classes to them."""
    if not _is_a(part, OurLoss, OurMiner, OurRegularizer) or getattr(part, "needs_classes", False):
        return CLASSES
    if isinstance(part, OurRegularizer):
        inner = [*_inner_losses(part), getattr(part, "miner", None)]
        taken = [kinds_taken(each) for each in inner if each is not None]
        return tuple(kind for kind in KINDS if all(kind in kinds for kinds in taken))
    takes_grades = hasattr(part, "on_grades") or not _is_a(part, OurLoss)
    return KINDS if takes_grades else tuple(kind for kind in KINDS if kind != "graded")


def _losses(loss: Any) -> list[Any]:
    """Those of nested sizes, or the one there is."""
    return list(loss.losses.values()) if isinstance(loss, Nested) else [loss]


def _inner_losses(part: Any) -> list[Any]:
    """Of a regularizer that has some."""
    return list(getattr(part, "losses", ())) if isinstance(part, OurRegularizer) else []


def _is_a(part: Any, *kinds: type) -> bool:
    return issubclass(part, kinds) if isinstance(part, type) else isinstance(part, kinds)


def _refusal(relevance: Relevance, part: Any, folder: str) -> str:
    """Who can, beside who cannot."""
    able = [
        name
        for name in catalogue.names(folder)
        if relevance.kind in kinds_taken(catalogue.find(folder, name))
    ]
    return (
        f"{_name(part)} cannot take relevance.kind={relevance.kind}; the {folder} that can: "
        f"{', '.join(able)}"
    )


def _name(part: Any) -> str:
    return getattr(part, "__name__", type(part).__name__)


def _takes(call: Callable[..., Any], number: int) -> bool:
    """Whether a call takes so many arguments by place."""
    try:
        inspect.signature(getattr(call, "forward", call)).bind(*[None] * number)
    except TypeError:
        return False
    return True


def check_for_memory(loss: AnyLoss, miner: Miner | None) -> None:
    """Stops parts that cannot take references."""
    if isinstance(loss, LabelLoss):
        raise ValueError(
            f"memory holds references for losses on pairs and triplets: {type(loss).__name__} "
            "compares with class parameters; use memory=none, or another loss"
        )
    if not _takes(loss, 5):
        raise ValueError(
            f"memory gives a loss references, and {_name(loss)} takes none: use memory=none, or "
            "give it (embeddings, labels, tuples, ref_embeddings, ref_labels)"
        )
    if getattr(miner, "switch", 0):
        raise ValueError(
            "the rho switch pairs an anchor with itself, which is not in the memory: use "
            "miner.switch=0.0 or memory=none"
        )


def counts(mined: Sequence[Pairs | Triplets | None]) -> dict[str, Tensor]:
    """How many tuples were mined, over all learners, and which share of triplets was switched."""
    found = [tuples for tuples in mined if tuples is not None]
    if not found:
        return {}
    if isinstance(found[0], Pairs):
        names = {"positive_pairs": 1, "negative_pairs": 3}
        return {n: torch.tensor(float(sum(len(t[at]) for t in found))) for n, at in names.items()}
    switched = torch.cat([tuples[0] == tuples[1] for tuples in found]).float()
    return {
        "triplets": torch.tensor(float(len(switched))),
        "switched": switched.mean() if len(switched) else torch.tensor(0.0),
    }
