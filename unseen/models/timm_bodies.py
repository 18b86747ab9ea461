"""Any model of timm as a body: timm:resnet18, timm:vit_small_patch14_dinov2.lvd142m, ...; also
hf-hub:<owner>/<model> and local-dir:<folder>, a folder with config.json and weights."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
from unseen.models.body_spec import InputSpec, Recipe, published_spec
from unseen.models.weights import State

SECONDS = 5.0  # to reach the hub of weights


def models() -> list[str]:
    result: list[str] = timm.list_models()
    return result


@cache
def recipe(model: str, image_size: int | None) -> Recipe:
    if ":" not in model and not timm.is_model(model):
        raise ValueError(f"timm has no model {model!r}: {advice(model, timm.list_models())}")
    body = _skeleton(model)
    spec = published_spec(body) or InputSpec(body.pretrained_cfg["input_size"][-1])
    is_fixed = image_size and body.pretrained_cfg.get("fixed_input_size")
    if is_fixed:
        _check_size(body, model, int(image_size or 0))
    size: dict[str, Any] = {"img_size": image_size} if is_fixed else {}
    if getattr(body, "dynamic_img_size", False):  # else positions are computed from every batch,
        size["dynamic_img_size"] = False  # and nothing could be cut between the blocks

    def make(weights: bool) -> nn.Module:
        made: nn.Module = _create(model, pretrained=weights, **size)
        return made

    classifier = body.pretrained_cfg.get("classifier") or ()
    names = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    own = getattr(body, "head_hidden_size", None)
    return Recipe(make, body.num_features, spec, names, renamed, num_own=own)


def renamed(state: State, body: nn.Module) -> State:
    """A checkpoint under timm's names, positions interpolated to the network's: what timm does with
    its own and with the authors' files."""
    wanted = body.state_dict()
    if all(k in state and state[k].shape == wanted[k].shape for k in wanted):
        return state
    read = getattr(sys.modules[type(body).__module__], "checkpoint_filter_fn", None)
    if read is None:
        return state
    changed: State
    if wanted.keys() <= state.keys():  # a classifier tells timm's own files from the authors'
        state = {"head.fc.weight": torch.zeros(1), **state}
        changed = read(state, body)
        return {key: value for key, value in changed.items() if not key.startswith("head.fc.")}
    changed = read(state, body)
    return changed


def _check_size(body: Any, model: str, size: int) -> None:
    """Patches that do not fill the image are an error where the image size is chosen."""
    patch = getattr(getattr(body, "patch_embed", None), "patch_size", None) or (1,)
    if size % patch[0]:
        near = max(1, round(size / patch[0])) * patch[0]
        raise ValueError(
            f"image_size={size}: {model} sees patches of {patch[0]} px, use a multiple, e.g. {near}"
        )


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


def _skeleton(model: str) -> Any:
    """A model of timm without weights, where it can be made so: only its metadata are read."""
    try:
        with torch.device("meta"):
            return _create(model)
    except ValueError as error:
        if not isinstance(error.__cause__, RuntimeError):
            raise
        return _create(model)  # it computes something while it is made


def _create(model: str, pretrained: bool = False, **settings: Any) -> Any:
    needs_hub = model.startswith("hf") or (pretrained and not model.startswith("local-dir"))
    with _without_waiting() if needs_hub else nullcontext(True) as is_reached:
        try:
            return timm.create_model(model, pretrained=pretrained, num_classes=0, **settings)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            if isinstance(error, KeyError):
                reason = f"its config.json names no {error}"
            if not is_reached:
                reason = f"{constants.ENDPOINT} cannot be reached, and its cache has none"
            what = "no pretrained weights of" if pretrained else "timm cannot make"
            remedy = ". weights=FILE takes a file" if pretrained else ""
            raise ValueError(f"{what} {model}: {reason}{remedy}") from error
