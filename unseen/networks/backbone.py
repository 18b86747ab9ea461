"""Backbones by name: pictures to a map and a pooled descriptor.

`small_conv` is built in; `timm:<name>` is any model of timm, e.g. `timm:resnet18` or
`timm:vit_small_patch16_224`, without weights unless `weights="imagenet"` asks timm to download them.
`InputSpec` says how a network wants its pictures: size, mean and standard deviation.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

import unseen.torchvision_operators  # noqa: F401 - before timm, which imports torchvision
from unseen.networks.small_conv import SmallConv

_TIMM = "timm:"


@dataclass(frozen=True)
class InputSpec:
    """What a network's pictures must look like: RGB in [0, 1], minus mean, over std."""

    size: int
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)


class Backbone(nn.Module):
    """A body, its pooling and how it wants its pictures."""

    def __init__(self, body: nn.Module, num_features: int, input_spec: InputSpec) -> None:
        super().__init__()
        self.body, self.num_features, self.input_spec = body, num_features, input_spec

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Pooled descriptors [N, P], and the last map [N, channels, height, width] if there is one."""
        features = self.features(images)
        if features.ndim == 4:
            return features.mean(dim=(2, 3)), features
        return self.pooled_tokens(features), None

    def features(self, images: Tensor) -> Tensor:
        body: Any = self.body
        features: Tensor = getattr(body, "forward_features", body)(images)
        return features

    def pooled_tokens(self, features: Tensor) -> Tensor:
        """A transformer's own pooling of its tokens."""
        body: Any = self.body
        pooled: Tensor = body.forward_head(features, pre_logits=True)
        return pooled


def create_backbone(
    name: str, picture_size: int | None = None, weights: str | None = None
) -> Backbone:
    """A backbone by name. `picture_size` None: the size the network was made for."""
    if name == "small_conv":
        if weights is not None:
            raise ValueError("small_conv has no published weights: leave weights out")
        body = SmallConv()
        return Backbone(body, body.num_features, InputSpec(picture_size or 40))
    if name.startswith(_TIMM):
        return _from_timm(name.removeprefix(_TIMM), picture_size, weights)
    raise ValueError(
        f"unknown backbone {name!r}: choose small_conv or timm:<model>, e.g. timm:resnet18"
    )


def _from_timm(model: str, picture_size: int | None, weights: str | None) -> Backbone:
    import timm  # noqa: PLC0415 - takes seconds, and only this branch needs it

    if weights not in (None, "imagenet"):
        raise ValueError(f"weights must be 'imagenet' or left out, got {weights!r}")
    if not timm.is_model(model):
        near = timm.list_models(f"*{model.split('.')[0]}*")[:5] or timm.list_models("resnet*")[:5]
        raise ValueError(f"timm has no model {model!r}: did you mean {', '.join(near)}?")
    takes_size = {"img_size": picture_size} if picture_size and "vit" in model else {}
    body = timm.create_model(model, pretrained=weights is not None, num_classes=0, **takes_size)
    wanted = timm.data.resolve_model_data_config(body)
    spec = InputSpec(picture_size or wanted["input_size"][-1], wanted["mean"], wanted["std"])
    return Backbone(body, body.num_features, spec)
