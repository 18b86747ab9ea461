"""ResNet-50, VGG-16-BN and GoogLeNet from torchvision, cut before their pooling and classifier.

Layer names are torchvision's, so its checkpoints load as they are. ImageNet weights are the first
ones (IMAGENET1K_V1), as in the literature: later recipes are not comparable.
GoogLeNet's weights expect images in (x - 0.5) / 0.5. Images arrive in the usual ImageNet
normalisation and its first layer, `transform_input`, maps them back. Its "5x5" branches are 3x3.
"""

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn

import unseen.core.torchvision_operators  # noqa: F401 - before torchvision
from unseen.models.body_spec import IMAGENET_MEAN, IMAGENET_STD, InputSpec, Recipe
from unseen.models.weights import State, fill

CLASSIFIERS = ("fc", "last_linear", "aux1", "aux2", "classifier")
UNUSED = (*CLASSIFIERS, "avgpool", "dropout")
WIDTHS = {"resnet50": 2048, "vgg16_bn": 512, "googlenet": 1024}  # channels of the last map


def recipe(name: str) -> Recipe:
    spec = InputSpec(224, IMAGENET_MEAN, IMAGENET_STD)
    return Recipe(partial(torchvision_body, name), WIDTHS[name], spec, CLASSIFIERS)


def torchvision_body(name: str, weights: bool) -> nn.Sequential:
    """The layers up to the last map, under torchvision's names. All three run them in order."""
    from torchvision import models  # noqa: PLC0415 - slow to import

    layers: list[tuple[str, nn.Module]]
    if name == "vgg16_bn":
        layers = [("features", _vgg_features())]
    elif name == "googlenet":
        model = models.googlenet(weights=None, aux_logits=False, init_weights=not weights)
        layers = [("transform_input", ToHalfRange()), *model.named_children()]
    else:
        layers = list(models.get_model(name, weights=None).named_children())
    body = nn.Sequential(OrderedDict((n, layer) for n, layer in layers if n not in UNUSED))
    if weights:
        fill(body, _imagenet(name), f"torchvision's {name}")
    return body


def _vgg_features() -> nn.Sequential:
    """VGG's convolutions with its starting values; the whole model would come with a classifier of
    120 million weights."""
    from torchvision.models import vgg  # noqa: PLC0415 - slow to import

    features: nn.Sequential = vgg.make_layers(vgg.cfgs["D"], batch_norm=True)
    for layer in features:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return features


def _imagenet(name: str) -> State:
    from torchvision import models  # noqa: PLC0415 - slow to import

    try:
        state = models.get_model_weights(name).IMAGENET1K_V1.get_state_dict(progress=False)
    except OSError as error:  # what urllib raises without a network
        raise ValueError(
            f"cannot download the ImageNet weights of {name} ({error}): give weights=FILE"
        ) from error
    return {key: value for key, value in state.items() if not key.startswith(CLASSIFIERS)}


class ToHalfRange(nn.Module):
    """From (x - mean) / std of ImageNet to (x - 0.5) / 0.5."""

    def __init__(self) -> None:
        super().__init__()
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", (std / 0.5)[:, None, None], persistent=False)
        self.register_buffer("shift", ((mean - 0.5) / 0.5)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.addcmul(self.shift, images, self.scale)
