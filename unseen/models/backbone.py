"""Backbones by name: images to a map and a pooled descriptor.

    small_conv                              built in, for small images, no weights needed
    efficientnet_lite0 | 1 | 2              ImageNet weights from installed packages, no download
    resnet50 | vgg16_bn | googlenet         torchvision's
    bn_inception | resnet50_caffe           ours, and the first ResNet-50; weights from a file
    timm:<model>                            any model of timm, e.g. timm:resnet18
    features:<size>                         none: the data are descriptors of that size
    ./my_body.py:MyBody                     from outside (`core/custom_components.py`): a class, or
                                            a function that makes a module, giving maps or vectors

`weights` is None (random), "imagenet", or a file (`weights.py`).
"""

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unseen.core import custom_components
from unseen.core.names import advice
from unseen.models.body_spec import InputSpec, Recipe, input_spec_of
from unseen.models.frozen_batch_norm import freeze_batch_norm, hold_statistics
from unseen.models.pooling import POOLINGS, create_pooling
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
KIND = "backbones"  # what packages announce them as
TIMM = "timm:"
FEATURES = "features:"
IMAGENET = "imagenet"
OWN = (
    "own"  # a network's own pooling: the mean of a map, whatever a transformer does with its tokens
)


class Backbone(nn.Module):
    """A body, its pooling and how it wants its images; `train()` leaves frozen layers frozen.

    Args:
        body: Images to a map [N, C, H, W], or to tokens [N, T, C].
        num_features: Numbers of a pooled descriptor.
        input_spec: Size and normalisation of images.
        pooling: `own`, as the body was trained, or one of `unseen.models.pooling`.
        frozen_bn: What stays of batch norm: `off` nothing, `stats` its means and variances, `full`
            its weights, too.
        mirror: Each image also passes as its mirror image, and the descriptor is the mean of both;
            the map is that of the image as it is. `evaluation`: not in training.

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
    ) -> None:
        super().__init__()
        if pooling not in (OWN, *POOLINGS):
            allowed = ", ".join((OWN, *POOLINGS))
            raise ValueError(f"pooling must be one of {allowed}, got {pooling!r}")
        self.body, self.num_features, self.input_spec = body, num_features, input_spec
        self.pools_itself = pooling == OWN
        self.pooling = create_pooling("avg" if self.pools_itself else pooling)
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
        if features.ndim == 4:
            maps = features.permute(0, 3, 1, 2) if self.has_channels_last else features
            return self.pooling(maps), maps
        body: Any = self.body
        if features.ndim == 2 and not hasattr(body, "forward_head"):
            return features, None
        if features.ndim == 3 and not self.pools_itself:
            patches = features[:, getattr(body, "num_prefix_tokens", 0) :]  # [N, T, C]
            return self.pooling(patches.transpose(1, 2)[..., None]), None
        if not self.pools_itself:
            raise ValueError("this backbone has no map to pool: leave pooling out")
        pooled: Tensor = body.forward_head(features, pre_logits=True)
        return pooled, None

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
        pooling: `own`, `avg`, `max`, `avg+max` or `gem`.
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
    spec = recipe.input_spec
    spec = InputSpec(image_size or spec.size, spec.mean, spec.std)
    backbone = Backbone(body, recipe.num_features, spec, pooling, frozen_bn, mirror)
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


def backbone_info(name: str) -> Metadata:
    """Descriptor size and wanted images, without the cost of random weights."""
    if name.startswith(FEATURES):
        return Metadata(_feature_count(name), InputSpec(0))
    recipe = _recipe(name, None)
    return Metadata(recipe.num_features, recipe.input_spec)


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
