"""Any model of timm as a body: timm:resnet18, timm:vit_small_patch14_dinov2.lvd142m, ..."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub import constants
from torch import nn

import unseen.core.torchvision_operators  # noqa: F401  (before timm, which imports torchvision)

# isort: split
import timm

from unseen.core.names import advice
from unseen.models.body_spec import InputSpec, Recipe

SECONDS = 5.0  # to reach the hub of weights


def models() -> list[str]:
    result: list[str] = timm.list_models()
    return result


@cache
def recipe(model: str, image_size: int | None) -> Recipe:
    if not timm.is_model(model):
        raise ValueError(f"timm has no model {model!r}: {advice(model, timm.list_models())}")
    published = timm.get_pretrained_cfg(model)
    is_fixed = published is not None and published.fixed_input_size
    size: dict[str, Any] = {"img_size": image_size} if image_size and is_fixed else {}

    def make(weights: bool) -> nn.Module:
        if not weights:
            bare: nn.Module = timm.create_model(model, num_classes=0, **size)
            return bare
        with _without_waiting() as is_reached:
            try:
                made: nn.Module = timm.create_model(model, pretrained=True, num_classes=0, **size)
            except (OSError, RuntimeError) as error:
                reason = str(error).splitlines()[0].rstrip(".")
                if not is_reached:
                    reason = f"{constants.ENDPOINT} cannot be reached, and its cache has none"
                raise ValueError(
                    f"no pretrained weights of {model}: {reason}. weights=FILE takes a file"
                ) from error
        return made

    body = _skeleton(model, size)
    wanted = timm.data.resolve_model_data_config(body)
    spec = InputSpec(wanted["input_size"][-1], wanted["mean"], wanted["std"])
    classifier = body.pretrained_cfg.get("classifier") or ()
    names = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return Recipe(make, body.num_features, spec, names)


@contextmanager
def _without_waiting() -> Iterator[bool]:
    """Where the hub of weights cannot be reached only its cache is asked, instead of trying again
    for a minute; gives whether it was reached. Behind a proxy nobody knows before trying."""
    hub = urlsplit(constants.ENDPOINT)
    before, is_reached = constants.HF_HUB_OFFLINE, True
    if not getproxies():
        try:
            socket.create_connection((str(hub.hostname), hub.port or 443), SECONDS).close()
        except OSError:
            is_reached = False
    constants.HF_HUB_OFFLINE = before or not is_reached
    try:
        yield is_reached
    finally:
        constants.HF_HUB_OFFLINE = before


def _skeleton(model: str, size: dict[str, Any]) -> Any:
    """A model of timm without weights, where it can be made so: only its metadata are read."""
    try:
        with torch.device("meta"):
            return timm.create_model(model, num_classes=0, **size)
    except (NotImplementedError, RuntimeError):  # it computes something while it is made
        return timm.create_model(model, num_classes=0, **size)
