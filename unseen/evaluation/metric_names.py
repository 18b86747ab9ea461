"""Metrics by name: `recall@4` is Recall(4). A name is that of the catalogue; the name of a
source stands for the metrics it printed."""

import inspect

from unseen import catalogue
from unseen.metrics.base import Clustering, Retrieval, Verification

_RECALLS = [f"recall@{k}" for k in (1, 2, 4, 8)]
_MORE_RECALLS = [*_RECALLS, "recall@16", "recall@32"]
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


def parse_metric(text: str) -> Metric:
    """The metric a name means; what stands after @ is the constructor's first value."""
    name, at, value = text.partition("@")
    metric = catalogue.find("metrics", name)
    if not at:
        return metric()
    if not inspect.signature(metric).parameters:
        raise ValueError(f"metric {name} takes no value, got {text!r}")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"after @ in {text!r} there must be a number") from None
    return metric(int(number) if number.is_integer() else number)
