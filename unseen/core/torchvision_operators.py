"""Lets torchvision import beside a CPU-only torch.

torchvision's wheel is built for CUDA. Beside a CPU build of torch its compiled library does not
load, and `import torchvision` (and so `import timm`) stops with "operator torchvision::nms does not
exist", because Python code in it attaches shape rules to two operators that nobody declared. We use
neither of them, so declaring their signatures is enough. Where torchvision's own library loads,
nothing is done.

Import this module before torchvision or timm. It must stay alive: torch forgets a declaration with
the object that made it.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import torch

_SIGNATURES = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def _own_library_loads() -> bool:
    """Loads torchvision's compiled operators the way torchvision itself does."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True  # nothing installed, nothing to mend
    for library in Path(spec.origin).parent.glob("_C*"):
        try:
            torch.ops.load_library(str(library))
        except (OSError, RuntimeError):
            return False
        return True
    return False


def declare_missing_operators() -> torch.library.Library | None:
    """Declares what torchvision needs to import; returns the keeper of the declarations."""
    if _own_library_loads():
        return None
    keeper = torch.library.Library("torchvision", "DEF")
    for name, signature in _SIGNATURES.items():
        if not hasattr(torch.ops.torchvision, name):
            keeper.define(signature)
    return keeper


@cache
def vision() -> Any:
    """torchvision's functions on images, imported when the first one is resized: it takes two
    seconds, and whoever only asks for help has none."""
    from torchvision.transforms.v2 import functional  # noqa: PLC0415

    return functional


_KEEPER = declare_missing_operators()
