"""Backbones by name: images to a map and a pooled descriptor.

    small_conv                              built in, for small images, no weights needed
    efficientnet_lite0 | 1 | 2              ImageNet weights from installed packages, no download
    resnet50 | vgg16_bn | googlenet         torchvision's
    bn_inception | resnet50_caffe           ours, and the first ResNet-50; weights from a file
    timm:<model>                            any model of timm, e.g. timm:resnet18,
                                            timm:hf-hub:<owner>/<model>, timm:local-dir:<folder>
    features:<size>                         none: the data are descriptors of that size
    ./my_body.py:MyBody                     from outside (`core/custom_components.py`): a class, or
                                            a function that makes a module, giving maps or vectors

`weights` is None (random), "imagenet", or a file (`weights.py`).
"""

import importlib
import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unseen.core import custom_components
from unseen.core.names import advice
from unseen.models.body_spec import InputSpec, Recipe, input_spec_of
from unseen.models.frozen_batch_norm import freeze_batch_norm, hold_statistics
from unseen.models.pooling import (
    ATTENTION,
    CLS,
    CLS_AND_MEAN,
    OF_TOKENS,
    POOLINGS,
    create_pooling,
)
from unseen.models.weights import load_weights

Mirror = bool | Literal["evaluation"]

BODIES = {  # name -> the file with its recipe, imported when it is asked for
    "small_conv": "small_conv",
    "efficientnet_lite0": "efficientnet_lite",
    "efficientnet_lite1": "efficientnet_lite",
    "efficientnet_lite2": "efficientnet_lite",
    "resnet50": "torchvision_bodies",
    "vgg16_bn": "torchvision_bodies",
    "googlenet": "torchvision_bodies",
    "bn_inception": "bn_inception",
    "resnet50_caffe": "resnet50_caffe",
}
_PREFIX = ("cls_token", "class_token", "register_tokens", "storage_tokens")
KIND = "backbones"  # what packages announce them as
TIMM = "timm:"
FEATURES = "features:"
IMAGENET = "imagenet"
OWN = "own"  # as published: what timm's `forward_head` gives before the classifier, or the mean


class Backbone(nn.Module):
    """A body, its pooling and how it wants its images; `train()` leaves frozen layers frozen.

    Args:
        body: Images to a map [N, C, H, W], to tokens [N, T, C] or to vectors.
        num_features: Channels of the map or the tokens, `num_channels` from here on.
        input_spec: Size and normalisation of images.
        pooling: `own`, as published; `avg`, `max`, `avg+max` or `gem` of the map or of the patch
            tokens, never of class and register tokens; `cls`, the class token; `cls+avg`, beside it
            the mean of the patch tokens, so that it is twice as long; `attention`, as published,
            where that is attention. A transformer's `fc_norm` follows.
        frozen_bn: What stays of batch norm: `off` nothing, `stats` its means and variances, `full`
            its weights, too.
        mirror: Each image also passes as its mirror image, and the descriptor is the mean of both;
            the map is that of the image as it is. `evaluation`: not in training.
        num_own: Numbers that its own pooling gives; None: `num_features`.

    Example:
        >>> from unseen.models import create_backbone
        >>> pooled, maps = create_backbone("small_conv", 32)(torch.zeros(2, 3, 32, 32))
        >>> pooled.shape, maps.shape
        (torch.Size([2, 256]), torch.Size([2, 256, 2, 2]))
    """

    def __init__(
        self,
        body: nn.Module,
        num_features: int,
        input_spec: InputSpec,
        pooling: str = OWN,
        frozen_bn: str = "off",
        mirror: Mirror = False,
        num_own: int | None = None,
    ) -> None:
        super().__init__()
        _check_pooling(body, pooling)
        self.body, self.num_channels, self.input_spec = body, num_features, input_spec
        self.num_features = _num_pooled(num_features, num_own, pooling)
        self.pools_itself = pooling in (OWN, ATTENTION)
        self.class_token = pooling if pooling in (CLS, CLS_AND_MEAN) else None
        self.num_prefix = _num_prefix_tokens(body)
        self.pooling = create_pooling(pooling if pooling in POOLINGS else "avg")
        self.has_channels_last = getattr(body, "output_fmt", None) == "NHWC"  # timm says so of Swin
        self.frozen_bn, self.mirror = frozen_bn, mirror
        self._frozen: list[nn.Module] = []
        self._frozen_parameters = [p for p in body.parameters() if not p.requires_grad]
        freeze_batch_norm(body, frozen_bn)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Pooled descriptors [N, P], and the last map [N, C, H, W] if there is one."""
        if not self.mirror or (self.mirror == "evaluation" and self.training):
            return self.pool(self.features(images))
        pooled, maps = self.pool(self.features(with_mirror_images(images)))
        return pooled.unflatten(0, (-1, 2)).mean(dim=1), maps if maps is None else maps[::2]

    def features(self, images: Tensor) -> Tensor:
        """The last map [N, C, H, W] or the last tokens [N, T, C]."""
        features: Tensor = getattr(self.body, self.features_method)(images)
        return features

    @property
    def features_method(self) -> str:
        """timm's models end in a classifier, which is not ours to run."""
        return "forward_features" if hasattr(self.body, "forward_features") else "forward"

    def extra_repr(self) -> str:
        """Part of a prefix's fingerprint: what is kept depends on it."""
        return "mirror" if self.mirror else ""

    def pool(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """The pooled descriptors, and the map: of tokens, that of the patches."""
        body: Any = self.body
        maps = self.places("", features)
        if maps.ndim == 3:
            maps = maps.transpose(1, 2).unflatten(2, self.grid(maps.shape[1]))
        shown = maps if maps.ndim == 4 else None
        if self.pools_itself and hasattr(body, "forward_head"):
            return body.forward_head(features, pre_logits=True), shown
        if shown is None:
            if not self.pools_itself:
                raise ValueError("this backbone has no map to pool: leave pooling out")
            return features, None
        result = [] if self.class_token is None else [features[:, 0]]
        result += [] if self.class_token == CLS else [self.pooling(maps)]
        if features.ndim == 3 and isinstance(norm := getattr(body, "fc_norm", None), nn.Module):
            result = [norm(each) for each in result]
        return torch.cat(result, dim=1), shown

    def places(self, layer: str, output: Tensor) -> Tensor:
        """What a layer of the body (or the body: "") gives, of places alone: a map [N, C, H, W] or
        the tokens of patches [N, T, C]; whatever else it is stays."""
        if output.ndim == 4 and self.has_channels_last:
            return output.permute(0, 3, 1, 2)
        if output.ndim == 4 and self.skipped(layer, output[:, 0]):  # one map of tokens per head
            output = output.transpose(1, 2).flatten(2)
        return output[:, self.skipped(layer, output) :] if output.ndim == 3 else output

    def skipped(self, layer: str, output: Tensor) -> int:
        """How many of a layer's tokens, the first ones, are of no place in the image."""
        has_prefix = output.ndim == 3 and output.shape[1] > self.num_prefix
        return self.num_prefix if has_prefix and "patch_embed" not in layer.split(".") else 0

    def grid(self, num_patches: int) -> tuple[int, int]:
        """Rows and columns of the patches of an image."""
        made: Any = getattr(getattr(self.body, "patch_embed", None), "grid_size", None)
        if made is not None and math.prod(made) == num_patches:
            return tuple(made)
        side = math.isqrt(num_patches)
        return (side, side) if side * side == num_patches else (1, num_patches)

    def freeze(self, modules: list[nn.Module], parameters: list[nn.Parameter]) -> None:
        """Layers that are to stay as they are: no gradient, evaluation mode for ever."""
        self._frozen = [*self._frozen, *modules]
        self._frozen_parameters = [*self._frozen_parameters, *parameters]
        self.set_trainable(True)
        self.train(self.training)

    def set_trainable(self, trainable: bool) -> None:
        """Switches the body's gradients; frozen layers stay frozen."""
        for parameter in self.body.parameters():
            parameter.requires_grad_(trainable)
        for parameter in self._frozen_parameters:
            parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        hold_statistics(self.body, self.frozen_bn)
        for module in self._frozen:
            module.eval()
        return self


def _check_pooling(body: nn.Module, name: str) -> None:
    allowed = (OWN, *POOLINGS, *OF_TOKENS)
    if name not in allowed:
        raise ValueError(f"pooling must be one of {', '.join(allowed)}, got {name!r}")
    tokens = ("attn_pool",) if name == ATTENTION else ("cls_token", "class_token")
    if name in OF_TOKENS and all(getattr(body, each, None) is None for each in tokens):
        kind = "attention pooling" if name == ATTENTION else "class token"
        raise ValueError(
            f"pooling={name}: this backbone has no {kind}, pooling=own is as published"
        )


def _num_pooled(num_channels: int, num_own: int | None, pooling: str) -> int:
    if pooling in (OWN, ATTENTION):
        return num_own or num_channels
    return (2 if pooling == CLS_AND_MEAN else 1) * num_channels


def _num_prefix_tokens(body: nn.Module) -> int:
    """Class and register tokens: as timm says, or the parameters that other sources call so."""
    for module in body.modules():
        if isinstance(stated := getattr(module, "num_prefix_tokens", None), int):
            return stated
    last = {name.rpartition(".")[2]: each for name, each in body.named_parameters()}
    return sum(each.shape[1] for name, each in last.items() if name in _PREFIX and each.ndim == 3)


def with_mirror_images(images: Tensor) -> Tensor:  # [2N, C, H, W]
    """Each image, and after it its mirror image."""
    both = torch.stack([images, images.flip(-1)], dim=1).flatten(0, 1)
    return both.contiguous(memory_format=torch.channels_last)


def create_backbone(
    name: str,
    image_size: int | None = None,
    weights: str | None = None,
    pooling: str = OWN,
    frozen_bn: str = "off",
    mirror: Mirror = False,
) -> Backbone:
    """A backbone by name.

    Args:
        name: `small_conv`, a network of torchvision or timm; of features `features:512`.
        image_size: Of its images; None: the size the network was made for.
        weights: None: random; `imagenet`; or a file.
        pooling: One of `Backbone`'s.
        frozen_bn: What stays of batch norm: `off`, `stats` or `full`.
        mirror: The descriptor is the mean of an image's and its mirror image's.

    Example:
        >>> from unseen.models import create_backbone
        >>> create_backbone("small_conv", 32).num_features
        256
    """
    if name.startswith(FEATURES):
        if mirror:
            raise ValueError(f"{name} sees no images: leave mirror out")
        return _ready_features(name, weights, pooling)
    recipe = _recipe(name, image_size)
    body = recipe.make(weights == IMAGENET)
    if weights not in (None, IMAGENET):
        load_weights(body, weights, recipe.classifiers, lambda state: recipe.adapt(state, body))
    spec = replace(recipe.input_spec, size=image_size or recipe.input_spec.size)
    num_features, num_own = recipe.num_features, recipe.num_own
    backbone = Backbone(body, num_features, spec, pooling, frozen_bn, mirror, num_own)
    if frozen_bn == "full":
        from unseen.models.folded_training import fold_in_training  # noqa: PLC0415 - imports timm

        probe = torch.linspace(-1, 1, 3 * spec.size**2).view(1, 3, spec.size, spec.size)
        fold_in_training(body, backbone.features, probe)
        backbone.train()
    return backbone


@dataclass(frozen=True)
class Metadata:
    """What is known of a backbone before it is made."""

    num_features: int
    input_spec: InputSpec


def backbone_info(name: str, pooling: str = OWN) -> Metadata:
    """Descriptor size and wanted images, without the cost of random weights."""
    if name.startswith(FEATURES):
        return Metadata(_feature_count(name), InputSpec(0))
    recipe = _recipe(name, None)
    num_features = _num_pooled(recipe.num_features, recipe.num_own, pooling)
    return Metadata(num_features, recipe.input_spec)


def _recipe(name: str, image_size: int | None) -> Recipe:
    if name.startswith(TIMM):
        return _body_file("timm_bodies").recipe(name.removeprefix(TIMM), image_size)
    if name in BODIES:
        return _body_file(BODIES[name]).recipe(name)
    if custom_components.is_reference(name):
        return _outside_recipe(custom_components.find(name), name, image_size)
    if name in custom_components.entry_points(KIND):
        return _outside_recipe(custom_components.entry_points(KIND)[name].load(), name, image_size)
    models = [TIMM + model for model in _body_file("timm_bodies").models()]
    near = advice(name, [*names(), *models])
    raise ValueError(f"unknown backbone {name!r}: {near} Any model of timm is timm:<model>")


def _body_file(name: str) -> Any:
    return importlib.import_module(f"unseen.models.{name}")


def names() -> list[str]:
    """Backbones by name, those that installed packages announce among them."""
    return [*BODIES, *sorted(custom_components.entry_points(KIND))]


def _feature_count(name: str) -> int:
    size = name.removeprefix(FEATURES)
    if not size.isdigit() or int(size) < 1:
        raise ValueError(f"expected {FEATURES}<size>, e.g. {FEATURES}512, got {name!r}")
    return int(size)


def _ready_features(name: str, weights: str | None, pooling: str) -> Backbone:
    size = _feature_count(name)
    if weights is not None or pooling != OWN:
        raise ValueError(f"{name} is no network: leave weights and pooling out")
    return Backbone(ReadyFeatures(), size, InputSpec(0))


def has_weights(name: str) -> bool:
    """Whether ImageNet weights of a backbone are here without any download."""
    return name in BODIES and _recipe(name, None).has_weights()


class ReadyFeatures(nn.Module):
    """The body for data that come as features: passes descriptors [N, P] on, through both doors."""

    def forward(self, features: Tensor) -> Tensor:
        return features

    def forward_head(self, features: Tensor, pre_logits: bool = True) -> Tensor:
        return features


def _outside_recipe(make: Any, name: str, image_size: int | None) -> Recipe:
    """A class, or a function that makes a module. It may take `pretrained` and say `input_spec`."""
    takes_weights = "pretrained" in inspect.signature(make).parameters

    def body(weights: bool) -> nn.Module:
        if weights and not takes_weights:
            raise ValueError(f"{name} takes no `pretrained`: leave weights out, or give a file")
        module: nn.Module = make(pretrained=weights) if takes_weights else make()
        return module

    built = body(False).eval()
    spec = input_spec_of(built, image_size)
    with torch.no_grad():
        output = built(torch.zeros(1, 3, spec.size, spec.size))
    if not isinstance(output, Tensor) or output.ndim not in (2, 4):
        raise ValueError(f"{name} must give a map [N, C, H, W] or a vector [N, P] per image")
    return Recipe(body, output.shape[1], spec)
