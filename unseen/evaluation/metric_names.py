"""Metrics by name: `recall@4` is Recall(4). A name is that of the catalogue; the name of a
source stands for the metrics it printed."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from unseen.core import custom_components, registry
from unseen.core.contracts import Neighbors
from unseen.metrics.base import Clustering, Rejection, Retrieval, Verification

_RECALLS = [f"recall@{k}" for k in (1, 2, 4, 8)]
_MORE_RECALLS = [*_RECALLS, "recall@16", "recall@32"]
USUAL = (*_RECALLS, "map_at_r", "r_precision", "nmi")
OPEN_SET = ("unknown_auroc", "fpr_at_tpr@0.95", "dir_at_far@0.01", "dir_at_far@0.1")
PRESETS: dict[str, list[str]] = {
    "revisit": [*_RECALLS, "f1", "revisit_hit_rate", "nmi"],  # the mAP of their text
    "revisit_code": [*_RECALLS, "f1", "revisit_map", "nmi"],  # the mAP of their tables
    "thesis": _RECALLS,
    "thesis_code": _RECALLS,
    "density": [*_MORE_RECALLS, "recall@64", "recall@128", "nmi"],
    "horde": _MORE_RECALLS,
    "vo_hays": _MORE_RECALLS,
}

Metric = Retrieval | Clustering | Verification


class CallMetric(Retrieval):
    """A function of `Neighbours` as a metric: it looks as deep as the largest class reaches."""

    def __init__(self, call: Callable[[Neighbors], Tensor]) -> None:
        self.call = call

    def depth(self, max_relevant: int) -> int:
        return max(1, max_relevant)

    def on_queries(self, neighbors: Neighbors) -> Tensor:
        return self.call(neighbors).double()


def metric_name(metric: str | Metric) -> str:
    """What a metric is called in results: its own name, wherever it comes from."""
    if not isinstance(metric, str):
        return type(metric).__name__
    name, at, value = metric.partition("@")
    return f"{custom_components.short_name(name)}{at}{value}"


def parse_metric(text: str) -> Metric:
    """The metric a name means; what stands after @ is the constructor's first value."""
    made = _parsed(text)
    if isinstance(made, Rejection):
        raise ValueError(
            f"{text} evaluates queries of classes that the gallery does not have: `unseen "
            "evaluate run RUN --open-set` measures it"
        )
    return made


def parse_rejection(text: str) -> Rejection:
    """The metric of an open set that a name means."""
    made = _parsed(text)
    if not isinstance(made, Rejection):
        raise ValueError(f"{text} is no metric of an open set: {', '.join(OPEN_SET)}, baks, baus")
    return made


def _parsed(text: str) -> Metric | Rejection:
    name, at, value = text.rpartition("@") if "@" in text else (text, "", "")
    metric: Any = registry.find("metrics", name)
    if isinstance(metric, Metric | Rejection):  # an object that was given
        return metric
    if inspect.isfunction(metric):
        return CallMetric(metric)
    if not (inspect.isclass(metric) and issubclass(metric, Metric | Rejection)):
        raise ValueError(
            f"{name} must be a subclass of Retrieval, Clustering or Verification of "
            "unseen.metrics.base, or a function of Neighbours"
        )
    make: Callable[..., Metric | Rejection] = metric
    if not at:
        return make()
    if not inspect.signature(metric).parameters:
        raise ValueError(f"metric {name} takes no value, got {text!r}")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"after @ in {text!r} there must be a number") from None
    return make(int(number) if number.is_integer() else number)
