"""Any model of timm as a body: timm:resnet18, timm:vit_small_patch14_dinov2.lvd142m, ..."""

from functools import cache
from typing import Any

import torch
from torch import nn

import unseen.torchvision_operators  # noqa: F401  (before timm, which imports torchvision)

# isort: split
import timm

from unseen.names import advice
from unseen.networks.recipe import InputSpec, Recipe


def models() -> list[str]:
    found: list[str] = timm.list_models()
    return found


@cache
def recipe(model: str, picture_size: int | None) -> Recipe:
    if not timm.is_model(model):
        raise ValueError(f"timm has no model {model!r}: {advice(model, timm.list_models())}")
    published = timm.get_pretrained_cfg(model)
    is_fixed = published is not None and published.fixed_input_size
    size: dict[str, Any] = {"img_size": picture_size} if picture_size and is_fixed else {}

    def make(weights: bool) -> nn.Module:
        try:
            made: nn.Module = timm.create_model(model, pretrained=weights, num_classes=0, **size)
        except (OSError, RuntimeError) as error:
            if not weights:
                raise
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"no ImageNet weights of {model}: {reason}. Give weights=FILE"
            ) from error
        return made

    body = _skeleton(model, size)
    wanted = timm.data.resolve_model_data_config(body)
    spec = InputSpec(wanted["input_size"][-1], wanted["mean"], wanted["std"])
    classifier = body.pretrained_cfg.get("classifier") or ()
    names = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return Recipe(make, body.num_features, spec, names)


def _skeleton(model: str, size: dict[str, Any]) -> Any:
    """A model of timm without weights, where it can be made so: only its facts are read."""
    try:
        with torch.device("meta"):
            return timm.create_model(model, num_classes=0, **size)
    except (NotImplementedError, RuntimeError):  # it computes something while it is made
        return timm.create_model(model, num_classes=0, **size)
