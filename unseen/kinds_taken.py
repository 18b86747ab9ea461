"""Which parts take which kind of relevance: a part that cannot is refused before training, beside
the names of those that can."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from unseen import catalogue
from unseen.losses.base import Loss
from unseen.miners.base import Miner
from unseen.nested import Nested
from unseen.regularizers.base import Regularizer
from unseen.relevance import CLASSES, KINDS, Relevance


def compared_by(relevance: Relevance | None, loss: Any) -> Relevance | None:
    """None where classes are all a loss hears of: labels are faster."""
    if relevance is None or relevance.kind == "labels":
        return None
    is_used = any(hasattr(each, "on_grades") for each in losses_of(loss))
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
    given: dict[str, Sequence[Any]] = {
        "losses": [
            *losses_of(loss),
            *(own for part in regularizers for own in _inner_losses(part)),
        ],
        "miners": [] if miner is None else [miner],
        "regularizers": regularizers,
    }
    if miner is not None and kinds_taken(miner) == CLASSES and relevance.classes is None:
        raise ValueError(
            f"{name_of(miner)} hears of classes alone: relevance.divided(classes) says which"
        )
    for folder, parts in given.items():
        for part in parts:
            if relevance.kind not in kinds_taken(part):
                raise ValueError(_refusal(relevance, part, folder))


def kinds_taken(part: Any) -> tuple[str, ...]:
    """What a loss, miner or regularizer, or its class, can take for "the same": it is asked what it
    has, a regularizer also what its losses and its miner take. Parts from outside get classes;
    levels are classes to them."""
    if not _is_a(part, Loss, Miner, Regularizer) or getattr(part, "needs_classes", False):
        return CLASSES
    if isinstance(part, Regularizer):
        inner = [*_inner_losses(part), getattr(part, "miner", None)]
        taken = [kinds_taken(each) for each in inner if each is not None]
        return tuple(kind for kind in KINDS if all(kind in kinds for kinds in taken))
    takes_grades = hasattr(part, "on_grades") or not _is_a(part, Loss)
    return KINDS if takes_grades else tuple(kind for kind in KINDS if kind != "graded")


def losses_of(loss: Any) -> list[Any]:
    """Those of nested sizes, or the one there is."""
    return list(loss.losses.values()) if isinstance(loss, Nested) else [loss]


def _inner_losses(part: Any) -> list[Any]:
    """Of a regularizer that has some."""
    return list(getattr(part, "losses", ())) if isinstance(part, Regularizer) else []


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
        f"{name_of(part)} cannot take relevance.kind={relevance.kind}; the {folder} that can: "
        f"{', '.join(able)}"
    )


def name_of(part: Any) -> str:
    """What a part is called."""
    return getattr(part, "__name__", type(part).__name__)
