"""Images to raw embeddings, or to descriptors of several layers: batch by batch, in evaluation
mode, without gradient."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from unseen.core.contracts import Batch, Network, Progress
from unseen.models.network import Hookable, portions

Field = Literal["embeddings", "pooled"]


def embed(
    network: Network,
    batches: Iterable[Batch],
    total: int,
    device: torch.device,
    progress: Progress | None = None,
    fields: Sequence[Field] = ("embeddings",),
) -> dict[str, Tensor]:  # each [total, D] float32 on the CPU
    """Fields of the network's output, in the order of the batches, from one forward pass. The
    network's training mode is left as it was."""

    def read(images: Tensor) -> dict[str, Tensor]:
        output = network(images)
        return {field: getattr(output, field) for field in fields}

    return _collected(network, read, batches, total, device, progress)


def embed_layers(
    network: Hookable,
    layers: Sequence[str],
    batches: Iterable[Batch],
    total: int,
    device: torch.device,
    progress: Progress | None = None,
) -> dict[str, Tensor]:  # each [total, d] float32 on the CPU
    """Unit descriptors of several layers from one forward pass."""

    def read(images: Tensor) -> dict[str, Tensor]:
        return network.layer_outputs(images, layers)

    return _collected(network, read, batches, total, device, progress)


@torch.inference_mode()
def _collected(
    network: Network,
    read: Callable[[Tensor], Mapping[str, Tensor]],
    batches: Iterable[Batch],
    total: int,
    device: torch.device,
    progress: Progress | None,
) -> dict[str, Tensor]:
    was_training = network.training
    network.eval()
    parts: dict[str, list[Tensor]] = {}
    done = 0
    for batch in batches:
        images = batch.images.to(device, non_blocking=True)
        if images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        for chunk in portions(images):
            for name, values in read(chunk).items():
                parts.setdefault(name, []).append(values.float().cpu())
        done += len(images)
        if progress is not None:
            progress(done, total)
    network.train(was_training)
    return {name: torch.cat(values).clone() for name, values in parts.items()}
