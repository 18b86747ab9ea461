"""Batch norm folded into the convolution before it."""

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval

from unseen.models.frozen_batch_norm import batch_norms

Read = TypeVar("Read", bound=nn.Module)
TOLERANCE = 1e-3  # of the largest output, between the folded and the unfolded network


@torch.no_grad()
def folded(network: Read, probe: Tensor) -> Read:
    """A copy of a network in evaluation mode, batch norms folded; `probe` is a typical input.

    Formula:
        with frozen statistics  gamma * (W x + b - mean) / sqrt(var + eps) + beta  is a convolution
        with W' = W * gamma / sqrt(var + eps),  b' = (b - mean) * gamma / sqrt(var + eps) + beta.

    Which norm follows which convolution is seen in a forward pass, by the tensor handed from one to
    the other; a network is folded only if that gives the same result. How it is trained so is in
    `folded_training.py`.
    """
    if network.training or not any(True for _ in batch_norms(network)):
        return network
    duplicate = copy.deepcopy(network)
    duplicate.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for convolution, norm in neighbors(duplicate, probe):
        _fold(duplicate, convolution, norm)
    return duplicate if are_same(network(probe), duplicate(probe)) else network


def are_same(before: Tensor, after: Tensor) -> bool:
    return bool((before - after).abs().max() <= TOLERANCE * before.abs().max())


def neighbors(
    network: nn.Module, probe: Tensor, run: Callable[[Tensor], Tensor] | None = None
) -> list[tuple[str, str]]:
    """Names of convolutions and of the norms that take exactly their output; each runs once."""
    made: dict[int, str] = {}
    alive: list[Tensor] = []  # an id means something only while its tensor lives
    pairs: list[tuple[str, str]] = []
    runs: dict[str, int] = {}

    def note(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        runs[name] = runs.get(name, 0) + 1
        if hasattr(module, "norm"):  # folded in training
            return
        if isinstance(module, nn.Conv2d):
            made[id(output)] = name
            alive.append(output)
        elif id(inputs[0]) in made:
            pairs.append((made[id(inputs[0])], name))

    handles = [
        module.register_forward_hook(lambda m, i, o, name=name: note(name, m, i, o))
        for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d | _BatchNorm)
    ]
    try:
        (run or network)(probe)
    finally:
        for handle in handles:
            handle.remove()
    return [(c, n) for c, n in pairs if runs[c] == 1 and runs[n] == 1]


def _fold(network: nn.Module, convolution: str, norm: str) -> None:
    old, before = network.get_submodule(norm), network.get_submodule(convolution)
    assert isinstance(old, _BatchNorm)
    assert isinstance(before, nn.Conv2d)
    network.set_submodule(convolution, fuse_conv_bn_eval(before, old))
    # timm's batch norms carry their activation: it stays
    leftover = [child for child in old.children() if not isinstance(child, nn.Identity)]
    network.set_submodule(norm, nn.Sequential(*leftover) if leftover else nn.Identity())
