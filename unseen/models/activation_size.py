"""How much memory training takes for each image: what the forward pass keeps for the backward
pass, counted on one image."""

from functools import cache

import torch
from torch import Tensor

from unseen.models.backbone import create_backbone


@cache
def bytes_per_image(backbone: str, image_size: int, frozen_bn: str) -> int:
    """Of the whole backbone in float32; weights, which are there once, are not counted."""
    network = create_backbone(backbone, image_size, frozen_bn=frozen_bn)
    network.train()
    own = {p.untyped_storage().data_ptr() for p in (*network.parameters(), *network.buffers())}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    images = torch.zeros(2, 3, image_size, image_size)  # one would have no statistics
    images = images.contiguous(memory_format=torch.channels_last)
    count = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), count:
        pooled, _ = network(images)  # alive while it is counted, and so is what it keeps
    del pooled
    return sum(saved.values()) // len(images)
