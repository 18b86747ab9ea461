"""ResNet-50, VGG-16-BN and GoogLeNet from torchvision, cut before their pooling and classifier.
 Layer names are torchvision's, so its checkpoints load as they are. ImageNet weights are the first
ones (IMAGENET1K_V1), as in the literature: later recipes are not comparable. GoogLeNet's weights
expect pictures in (x - 0.5) / 0.5. Pictures arrive in the usual ImageNet normalisation and its
first layer, `transform_input`, maps them back. Its "5x5" branches are 3x3.
"""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

import unseen.torchvision_operators  # noqa: F401 - before torchvision
from unseen.networks.input_spec import IMAGENET_MEAN, IMAGENET_STD

CLASSIFIERS = ("fc", "last_linear", "aux1", "aux2", "classifier")
UNUSED = (*CLASSIFIERS, "avgpool", "dropout")


def torchvision_body(name: str, weights: bool) -> nn.Sequential:
    """The layers up to the last map, under torchvision's names. All three run them in order."""
    from torchvision import models  # noqa: PLC0415 - slow to import

    first: Any = "IMAGENET1K_V1" if weights else None
    options: dict[str, Any] = {"init_weights": True} if name == "googlenet" and not weights else {}
    try:
        model: nn.Module = models.get_model(name, weights=first, **options)
    except OSError as error:  # what urllib raises without a network
        raise ValueError(
            f"cannot download the ImageNet weights of {name} ({error}): give weights=FILE"
        ) from error
    layers = [(part, layer) for part, layer in model.named_children() if part not in UNUSED]
    if name == "googlenet":
        layers.insert(0, ("transform_input", ToHalfRange()))
    return nn.Sequential(OrderedDict(layers))


class ToHalfRange(nn.Module):
    """From (x - mean) / std of ImageNet to (x - 0.5) / 0.5."""

    def __init__(self) -> None:
        super().__init__()
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        scale, shift = (std / 0.5)[:, None, None], ((mean - 0.5) / 0.5)[:, None, None]
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.addcmul(self.shift, images, self.scale)
