"""Metrics by name: `recall@4` is Recall(4). A name is a file of unseen/metrics."""

import importlib
import inspect
import pkgutil
from difflib import get_close_matches

from unseen import metrics
from unseen.metrics.base import Clustering, Retrieval, Verification

Metric = Retrieval | Clustering | Verification


def parse_metric(text: str) -> Metric:
    """The metric a name means; what stands after @ is the constructor's first value."""
    name, at, value = text.partition("@")
    known = sorted(m.name for m in pkgutil.iter_modules(metrics.__path__) if m.name != "base")
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.5) or known
        raise ValueError(f"unknown metric {text!r}; the nearest are: {', '.join(near)}")
    module = importlib.import_module(f"unseen.metrics.{name}")
    metric = getattr(module, "".join(word.capitalize() for word in name.split("_")))
    if not at:
        return metric()
    if not inspect.signature(metric).parameters:
        raise ValueError(f"metric {name} takes no value, got {text!r}")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"after @ in {text!r} there must be a number") from None
    return metric(int(number) if number.is_integer() else number)
