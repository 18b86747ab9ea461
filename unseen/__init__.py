"""Unseen: deep metric learning that is evaluated on classes it has never seen.

    run = unseen.fit("photos/", loss="proxy_anchor")     train, select, evaluate on unseen classes
    unseen.evaluate(embeddings, labels)                  any embeddings, honestly
    unseen.load("runs/a").embed(["a.jpg"])               a trained run at work
    from unseen import losses, miners, samplers, ...     every method by its class

Everything is found when it is asked for: importing torch takes seconds.
"""

import importlib
from typing import Any

__version__ = "0.3.0"
_PLACES = {  # name -> where it is
    "Index": "search.index:Index",
    "MetricLearner": "estimator:MetricLearner",
    "Output": "core.contracts:Output",
    "Run": "api:Run",
    "backbones": "api:backbones",
    "calibrate": "evaluation.calibration:calibrate",
    "compare": "api:compare",
    "diagnose": "api:diagnose",
    "evaluate": "evaluation.evaluate:evaluate",
    "fit": "api:fit",
    "load": "api:load",
    "study": "api:study",
    "trust": "core.custom_components:trust",
}
_PACKAGES = (
    "classical",
    "data",
    "diagnostics",
    "losses",
    "metrics",
    "miners",
    "models",
    "protocols",
    "regularizers",
    "samplers",
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"unseen.{name}")
    if name in _PLACES:
        module, _, attribute = _PLACES[name].partition(":")
        return getattr(importlib.import_module(f"unseen.{module}"), attribute)
    raise AttributeError(f"module 'unseen' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_PLACES, *_PACKAGES, "__version__"])
