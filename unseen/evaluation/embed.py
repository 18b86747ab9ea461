"""Pictures to raw embeddings, batch by batch, in evaluation mode and without gradient."""

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from unseen.contracts import Batch

Progress = Callable[[int, int], None]  # done, total


@torch.inference_mode()
def embed(
    network: nn.Module,
    batches: Iterable[Batch],
    total: int,
    device: torch.device,
    progress: Progress | None = None,
    field: Literal["embeddings", "pooled"] = "embeddings",
) -> Tensor:  # [total, D] float32 on the CPU
    """A field of the network's output, in the order of the batches. The network's training mode is
    left as it was."""
    was_training = network.training
    network.eval()
    parts: list[Tensor] = []
    done = 0
    for batch in batches:
        images = batch.images.to(device)
        if images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        parts.append(getattr(network(images), field).float().cpu())
        done += len(images)
        if progress is not None:
            progress(done, total)
    network.train(was_training)
    return torch.cat(parts).clone()
