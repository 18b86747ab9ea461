"""NetA to NetF: where the loss sits and what starts from scratch.

Paper    N. Vo, J. Hays, Generalization in Metric Learning, WACV 2019,
         https://arxiv.org/abs/1803.03310
Nets     all: global max pooling, dropout 0.01 after it (their code), layers of 512.

             net   head              from scratch
             A     fc1               head
             B     fc1               head, the last convolution and its batch norm
             C     fc1               everything
             D     none              nothing: the loss sits on the pooled map
             E     fc1 fc2           head
             F     fc1 fc2 fc3       head

         A-cls is net_a under the `softmax` loss, whose classifier is the paper's fc7.
Use      on vgg16_bn as published; on any backbone the same roles.
"""

from dataclasses import dataclass

from torch import nn

from unseen.models.backbone import IMAGENET, backbone_info, create_backbone
from unseen.models.frozen_batch_norm import batch_norms
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork

SIZE, DROPOUT = 512, 0.01


@dataclass(frozen=True)
class Preset:
    """num_layers: linear layers of the head. resets_last: the last convolution starts anew.
    pretrained: whether the rest of the backbone has weights."""

    num_layers: int
    resets_last: bool = False
    pretrained: bool = True


PRESETS = {
    "net_a": Preset(1),
    "net_b": Preset(1, resets_last=True),
    "net_c": Preset(1, pretrained=False),
    "net_d": Preset(0),
    "net_e": Preset(2),
    "net_f": Preset(3),
}


def create_preset(
    name: str,
    backbone: str = "vgg16_bn",
    image_size: int | None = None,
    weights: str | None = IMAGENET,
    frozen_bn: str = "off",
) -> EmbeddingNetwork:
    """A network of the paper; net_c leaves the weights aside."""
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {name!r}")
    preset = PRESETS[name]
    if preset.resets_last and frozen_bn != "off":
        raise ValueError(f"{name} trains its last batch norm anew: frozen_bn must be off")
    start = weights if preset.pretrained else None
    body = create_backbone(backbone, image_size, start, "max", frozen_bn)
    if preset.resets_last:
        reset_last_convolution(body.body)
    size = SIZE if preset.num_layers else None
    head = Head(body.num_features, size, [SIZE] * (preset.num_layers - 1), dropout=DROPOUT)
    return EmbeddingNetwork(body, head)


def preset_size(name: str, backbone: str = "vgg16_bn") -> int:
    """The embedding size of a network of the paper."""
    return SIZE if PRESETS[name].num_layers else backbone_info(backbone, "max").num_features


def reset_last_convolution(body: nn.Module) -> list[str]:
    """New starting values for the last convolution and the norms after it; returns their names."""
    named = list(body.named_modules())
    places = [i for i, (_, layer) in enumerate(named) if isinstance(layer, nn.Conv2d)]
    if not places:
        raise ValueError("net_b needs a backbone with convolutions")
    norms = set(batch_norms(body))
    after = [(name, layer) for name, layer in named[places[-1] :] if layer in norms]
    reset = [named[places[-1]], *after]
    for _, layer in reset:
        layer.reset_parameters()
    return [name for name, _ in reset]
