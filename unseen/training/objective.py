"""What training minimises: (filter ->) miner -> loss + weighted regularizers, as named scalars."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unseen.core import registry
from unseen.core.contracts import Loss, Miner, Output, Regularizer
from unseen.core.relevance import CLASSES, KINDS, AnyLabels, Related, Relevance
from unseen.core.tuples import Pairs, Triplets, from_indices
from unseen.losses.base import (
    LabelLoss,
    LossSum,
    as_module,
    call_loss,
    check_takes_tuples,
    name_of,
    takes,
    takes_tuples,
)
from unseen.losses.base import Loss as OurLoss
from unseen.miners.base import Miner as OurMiner
from unseen.regularizers.base import Regularizer as OurRegularizer
from unseen.training.nested import Nested

if TYPE_CHECKING:
    from unseen.training.cross_batch_memory import CrossBatchMemory

Weighted = tuple[str, float, Regularizer]  # name, weight, regularizer
AnyLoss = Loss | Callable[[Tensor, Tensor], Tensor]  # or a plain function of two tensors


class MinedObjective(nn.Module):
    """`total` is the loss, that against the memory and each regularizer, times their weights.

    The objective counts tuples and collects what regularizers report, so that formulas need not
    log.

    The learners of an ensemble (`Output.heads`) are mined and priced one by one, and their mean is
    the loss: losses sum over the batch, so learners in one batch would be compared with each other.
    (HORDE's code counts the active pairs of all learners together; here each learner has its own.)
    """

    def __init__(
        self,
        loss: AnyLoss,
        miner: Miner | None = None,
        regularizers: Sequence[Weighted] = (),
        memory: "CrossBatchMemory | None" = None,
        relevance: Relevance | None = None,
        label_filter: nn.Module | None = None,
    ) -> None:
        """relevance: who is the same as whom, where it is more than a class. label_filter: which
        items of a batch count (`training/prism.py`)."""
        super().__init__()
        names = [name for name, _, _ in regularizers]
        if len(set(names)) < len(names):
            raise ValueError(f"each regularizer needs a name of its own, got {', '.join(names)}")
        has_taker = miner is not None and any(takes_tuples(each) for each in _losses(loss))
        for each in _losses(loss):
            check_takes_tuples(each, miner is not None and (takes_tuples(each) or not has_taker))
            if memory is not None:
                check_for_memory(each, miner)
        relevance = compared_by(relevance, loss)
        components = [regularizer for _, _, regularizer in regularizers]
        if relevance is not None:
            check_takes_relevance(relevance, loss, miner, components, label_filter)
        self.relevance, self.label_filter = relevance, label_filter
        # regularizers that take classes alone, where they are levels to others
        self._by_class = {name for name, _, each in regularizers if kinds_taken(each) == CLASSES}
        self._mines_by_class = miner is not None and kinds_taken(miner) == CLASSES
        self.loss, self.miner, self.memory = as_module(loss, 3), miner, memory
        self.regularizers = nn.ModuleDict({n: as_module(each, 2) for n, _, each in regularizers})
        self.weights = {name: weight for name, weight, _ in regularizers}
        self._drawing = {name: p for name, p in self.named_modules() if hasattr(p, "draws")}

    def forward(
        self, output: Output, labels: Tensor, indices: Tensor | None = None
    ) -> dict[str, Tensor]:
        return self.terms(output, self.local_halves(output), labels, indices)

    def local_halves(self, output: Output) -> dict[str, Tensor]:
        """Rows [N, ...] of the regularizers that read maps, which are never sent to another
        process: each computes the rows of its own images."""
        with torch.autocast(output.embeddings.device.type, enabled=False):
            return {name: each.local_half(output) for name, each in self._on_maps().items()}

    def terms(
        self,
        output: Output,
        halves: Mapping[str, Tensor],
        classes: Tensor,
        indices: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The terms of a batch, given the local halves of all its images; `indices`, their
        positions in the data set, are looked at where the same is more than a class."""
        if self.label_filter is None:
            return self._terms(output, halves, classes, indices)
        stays = self.label_filter(output.embeddings, classes)
        halves = {name: rows[stays] for name, rows in halves.items()}
        indices = None if indices is None else indices[stays.to(indices.device)]
        terms = self._terms(_of(output, stays), halves, classes[stays], indices)
        return terms | {"left_out": 1 - stays.float().mean()}

    def _terms(
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
        loss_values = [
            call_loss(loss, x, labels, tuples)
            for (loss, x), tuples in zip(learners, mined, strict=True)
        ]
        terms = {"loss": self._mean(loss_values)}
        total = terms["loss"]
        if self.memory is not None:
            terms["memory"] = self._against(self.memory, output.embeddings, keys)
            total = total + self.memory.weight * terms["memory"]
        regularizers: dict[str, Any] = dict(self.regularizers.items())
        for name, regularizer in regularizers.items():
            known = classes if name in self._by_class else labels
            if name in halves:
                terms[name] = regularizer.global_half(halves[name], known)
            else:
                terms[name] = regularizer(output, known)
            total = total + self.weights[name] * terms[name]
            report: Mapping[str, Tensor] = getattr(regularizer, "report", dict)()
            terms |= {f"{name}.{key}": value for key, value in report.items()}
        return {"total": total, **terms, **counts(mined)}

    def _labels(self, classes: Tensor, indices: Tensor | None) -> tuple[Tensor, AnyLabels]:
        """One integer for each image, and what the parts are to take for its label."""
        if self.relevance is None:
            return classes, classes
        if indices is None:
            raise ValueError(f"{self.relevance.kind} are of items: the objective needs indices")
        keys = indices.to(classes.device)
        return keys, self.relevance.of(keys)

    def _mined(self, *tensors: Any) -> Pairs | Triplets | None:
        """The tuples of one learner, given its embeddings, labels and references; None where the
        loss is to take all there are."""
        if self.miner is None:
            return None
        if self._mines_by_class:
            tensors = tuple(x.classes if isinstance(x, Related) else x for x in tensors)
        return from_indices(self.miner(*tensors))

    def _learners(self, embeddings: Tensor) -> list[tuple[nn.Module, Tensor]]:
        """Which loss takes which values: one all of them, nested ones their prefixes."""
        if isinstance(self.loss, Nested):
            return self.loss.prefixes(embeddings)
        return [(self.loss, embeddings)]

    def _mean(self, loss_values: list[Tensor]) -> Tensor:
        if isinstance(self.loss, Nested):
            return self.loss.mean(loss_values)
        return torch.stack(loss_values).mean() if len(loss_values) > 1 else loss_values[0]

    def _against(self, memory: "CrossBatchMemory", embeddings: Tensor, keys: Tensor) -> Tensor:
        """The loss against earlier batches; then the memory takes this one up."""
        loss_value = embeddings.new_zeros(())
        if len(memory):
            rows, stored = memory.references()
            labels, others = (self._labels(of, of)[1] for of in (keys, stored))
            loss_values = []
            for loss, x in self._learners(embeddings):
                references = (rows[:, : x.shape[1]], others)
                mined = self._mined(x, labels, *references)
                loss_values.append(call_loss(loss, x, labels, mined, *references))
            loss_value = self._mean(loss_values)
        memory.add(embeddings, keys)
        return loss_value

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups of the loss's and the regularizers' own parameters."""
        groups: list[dict[str, Any]] = []
        components: list[Any] = [*_losses(self.loss), *self.regularizers.values()]
        for component in components:
            own = list(component.parameters())
            if hasattr(component, "parameter_groups"):
                groups += component.parameter_groups(lr)
            elif own:  # of another library: the run's rate, no decay
                groups.append({"params": own, "lr": lr, "weight_decay": 0.0})
        return groups

    def local_parameters(self) -> list[nn.Parameter]:
        """Those behind the local halves: each process holds a summand of their gradient."""
        return [p for each in self._on_maps().values() for p in each.local_parameters()]

    def sharded(self) -> dict[str, slice]:
        """Parameters of which this process holds some rows only, by name, and which rows."""
        modules: dict[str, Any] = {name: m for name, m in self.named_modules() if name}
        return {
            f"{path}.{name}": rows
            for path, module in modules.items()
            if hasattr(module, "sharded")
            for name, rows in module.sharded().items()
        }

    def local_rows(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of a state with all rows that of this process."""
        sharded = self.sharded()
        return {n: t[sharded[n]] if n in sharded else t for n, t in state.items()}

    def _on_maps(self) -> dict[str, Any]:
        regularizers: dict[str, Any] = dict(self.regularizers.items())
        return {n: each for n, each in regularizers.items() if hasattr(each, "local_half")}

    @property
    def wants_pooled(self) -> bool:
        """Whether a regularizer waits for `prepare`."""
        return any(not getattr(each, "is_prepared", True) for each in self.regularizers.values())

    def prepare(self, pooled: Tensor, labels: Tensor) -> None:
        """Once before the first step: the initial network's descriptors [n, P] of all training
        items and their classes 0..C-1 [n]."""
        regularizers: list[Any] = list(self.regularizers.values())
        for regularizer in regularizers:
            if not getattr(regularizer, "is_prepared", True):
                regularizer.prepare(pooled, labels)

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
        inner = {name: getattr(each, "miner", None) for name, each in self.regularizers.items()}
        result: dict[str, Any] = {"loss": self.miner, **inner, **self._drawing}
        return {name: miner for name, miner in result.items() if hasattr(miner, "state_dict")}


def _of(output: Output, stays: Tensor) -> Output:
    """Some items of a batch; stays: bool [N]."""
    maps, heads = output.maps, output.heads
    return Output(
        output.embeddings[stays],
        output.pooled[stays],
        None if maps is None else maps[stays],
        None if heads is None else heads[stays],
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
    losses = [*_losses(loss), *(own for each in regularizers for own in _inner_losses(each))]
    components: dict[str, Sequence[Any]] = {"losses": losses, "regularizers": regularizers}
    components["miners"] = [] if miner is None else [miner]
    if miner is not None and kinds_taken(miner) == CLASSES and relevance.classes is None:
        raise ValueError(
            f"{name_of(miner)} hears of classes alone: relevance.sharded(classes) says which"
        )
    for folder, those in components.items():
        for component in those:
            if relevance.kind not in kinds_taken(component):
                raise ValueError(_refusal(relevance, component, folder))


def kinds_taken(component: Any) -> tuple[str, ...]:
    """The kinds of relevance that a loss, miner or regularizer, or its class, takes: by the methods
    it has, and a regularizer by its losses and its miner. Custom components take classes; levels
    are classes to them."""
    kind = component if isinstance(component, type) else type(component)
    is_ours = issubclass(kind, OurLoss | OurMiner | OurRegularizer)
    if not is_ours or getattr(component, "needs_classes", False):
        return CLASSES
    if isinstance(component, OurRegularizer):
        inner = [*_inner_losses(component), getattr(component, "miner", None)]
        taken = [kinds_taken(each) for each in inner if each is not None]
        return tuple(kind for kind in KINDS if all(kind in kinds for kinds in taken))
    takes_grades = hasattr(component, "on_grades") or not issubclass(kind, OurLoss)
    return KINDS if takes_grades else tuple(kind for kind in KINDS if kind != "graded")


def _losses(loss: Any) -> list[Any]:
    """Those of nested sizes and of a sum, or the one there is."""
    if isinstance(loss, Nested):
        return [each for of_size in loss.losses.values() for each in _losses(of_size)]
    return list(loss.losses) if isinstance(loss, LossSum) else [loss]


def _inner_losses(component: Any) -> list[Any]:
    """Of a regularizer that has some."""
    return list(getattr(component, "losses", ())) if isinstance(component, OurRegularizer) else []


def _refusal(relevance: Relevance, component: Any, folder: str) -> str:
    """Who can, beside who cannot."""
    able = [
        name
        for name in registry.names(folder)
        if relevance.kind in kinds_taken(registry.find(folder, name))
    ]
    return (
        f"{name_of(component)} cannot take relevance.kind={relevance.kind}; the {folder} that can: "
        f"{', '.join(able)}"
    )


def check_for_memory(loss: AnyLoss, miner: Miner | None) -> None:
    """Stops parts that cannot take references."""
    if isinstance(loss, LabelLoss):
        raise ValueError(
            f"memory holds references for losses on pairs and triplets: {type(loss).__name__} "
            "compares with class parameters; use memory=none, or another loss"
        )
    if not takes(loss, 5):
        raise ValueError(
            f"memory gives a loss references, and {name_of(loss)} takes none: use memory=none, or "
            "give it (embeddings, labels, tuples, ref_embeddings, ref_labels)"
        )
    if getattr(miner, "switch", 0):
        raise ValueError(
            "the rho switch pairs an anchor with itself, which is not in the memory: use "
            "miner.switch=0.0 or memory=none"
        )


def counts(mined: Sequence[Pairs | Triplets | None]) -> dict[str, Tensor]:
    """How many tuples were mined, over all learners, and which share of triplets was switched."""
    result = [tuples for tuples in mined if tuples is not None]
    if not result:
        return {}
    if isinstance(result[0], Pairs):
        names = {"positive_pairs": 1, "negative_pairs": 3}
        return {n: torch.tensor(float(sum(len(t[at]) for t in result))) for n, at in names.items()}
    switched = torch.cat([tuples[0] == tuples[1] for tuples in result]).float()
    return {
        "triplets": torch.tensor(float(len(switched))),
        "switched": switched.mean() if len(switched) else torch.tensor(0.0),
    }
