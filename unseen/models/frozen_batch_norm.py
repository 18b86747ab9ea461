"""Frozen batch norm in three levels: what of a pretrained network's normalisation may move."""

from collections.abc import Iterator
from typing import Literal, TypeVar, get_args

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import unseen.core.torchvision_operators  # noqa: F401 - before timm, which imports torchvision

Trained = TypeVar("Trained", bound=nn.Module)
FrozenBatchNorm = Literal["off", "stats", "full"]
LEVELS: tuple[str, ...] = get_args(FrozenBatchNorm)


def freeze_batch_norm(module: nn.Module, level: str) -> None:
    """Puts every batch norm below `module` on a level, once; `hold_statistics` keeps it there.

    Levels:
        off    statistics follow the batches, gamma and beta are trained
        stats  running statistics stay for ever; gamma, beta are trained and decayed (Roth's code)
        full   nothing of it moves (Roth's text, Proxy-Anchor's intention)

    Why:
        `train()` puts batch norm back into training, and a warm-up that switches `requires_grad`
        on for all parameters unfreezes gamma and beta (Proxy-Anchor's and Psomas's code do). So
        level `full` makes buffers of them: no optimiser, decay or switch can reach a buffer; names
        on disk stay the same.

    Use:
        stats for small batches, full on CUB and Cars, off on large data (Psomas, per data set).
    """
    if level not in LEVELS:
        raise ValueError(f"frozen_bn must be one of {', '.join(LEVELS)}, got {level!r}")
    if level == "full":
        for norm in batch_norms(module):
            for name in ("weight", "bias"):
                _make_buffer(norm, name)
    hold_statistics(module, level)


def hold_statistics(module: nn.Module, level: str) -> None:
    """To be called after every `train()`: frozen statistics must not follow the batches."""
    if level != "off":
        for norm in batch_norms(module):
            norm.eval()


def sync_batch_norm(network: Trained) -> Trained:
    """Batch norm that follows the batches takes its statistics from the images of all processes:
    on GPUs; there is no such layer for CPUs."""
    from timm.layers import convert_sync_batchnorm  # noqa: PLC0415 - slow to import

    if any(norm.training for norm in batch_norms(network.train())):
        network = convert_sync_batchnorm(network)
    return network


def batch_norms(module: nn.Module) -> Iterator[nn.Module]:
    """Every batch norm, timm's with a built-in activation among them."""
    return (inner for inner in module.modules() if isinstance(inner, _BatchNorm))


def _make_buffer(norm: nn.Module, name: str) -> None:
    parameter = norm._parameters.get(name)
    if parameter is not None:
        delattr(norm, name)
        norm.register_buffer(name, parameter.detach())
