"""How the body of a backbone is built, and the images it takes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from unseen.data.images.crops import BICUBIC, BILINEAR, USUAL_CROP_PCT, Channels, Resizing
from unseen.models.weights import State

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)
USUAL_SIZE = 224


@dataclass(frozen=True)
class InputSpec:
    """How a network wants its images: RGB in [0, 1], minus mean, over std, at a size.

    Networks that were trained on another channel order turn the channels themselves: images are RGB
    everywhere outside a network.

    Args:
        size: Height and width in pixels.
        mean: Of red, green, blue.
        std: Of red, green, blue.
        source: Where they are from, for the reader.
        interpolation: `bilinear`, `bicubic` or `lanczos`, in the transforms `base` and `adv`.
        crop_pct: What their centre crop shows of the short side, 0 to 1, as timm calls it.
        is_squeezed: Both sides are resized to one length before it.

    Example:
        >>> from unseen.models import InputSpec
        >>> print(InputSpec(224, source="as given"))
        mean 0.5 0.5 0.5, std 0.5 0.5 0.5, bilinear, crop_pct 0.875 (as given)
    """

    size: int
    mean: Channels = (0.5, 0.5, 0.5)
    std: Channels = (0.5, 0.5, 0.5)
    source: str = field(default="", compare=False)
    interpolation: str = BILINEAR
    crop_pct: float = USUAL_CROP_PCT
    is_squeezed: bool = False

    @property
    def resizing(self) -> Resizing:
        return Resizing(self.interpolation, self.crop_pct, self.is_squeezed)

    def __str__(self) -> str:
        mean, std = (" ".join(f"{value:g}" for value in of) for of in (self.mean, self.std))
        resizing = f"{self.interpolation}, crop_pct {self.crop_pct:g}"
        return f"mean {mean}, std {std}, {resizing} ({self.source})"


@dataclass(frozen=True)
class Recipe:
    """`make(True)` has ImageNet weights; `has_weights()`: they are here without any download.
    num_features: channels of the map or the tokens. num_own: values that its own pooling gives.
    classifiers, adapt: how checkpoints of its pretraining are read (`weights.load_weights`)."""

    make: Callable[[bool], nn.Module]
    num_features: int
    input_spec: InputSpec
    classifiers: tuple[str, ...] = ()
    adapt: Callable[[State, nn.Module], State] = lambda state, body: state
    has_weights: Callable[[], bool] = lambda: False
    num_own: int | None = None


def input_spec_of(module: Any, image_size: int | None) -> InputSpec:
    """How a module of the user's own wants its images: as it says, or as the weights of the timm
    or torchvision model in it do."""
    name = type(module).__name__
    unknown = f"no values known of {name}: input_spec = InputSpec(...) sets them"
    result = next(filter(None, map(published_spec, module.modules())), None)
    result = result or InputSpec(USUAL_SIZE, source=unknown)
    stated = getattr(module, "input_spec", result)
    if not isinstance(stated, InputSpec):
        raise ValueError(f"input_spec of {name} must be an unseen.models.InputSpec, got {stated!r}")
    source = stated.source or f"the input_spec of {name}"
    return replace(stated, size=image_size or stated.size, source=source)


def published_spec(module: nn.Module) -> InputSpec | None:
    """What a model of timm or torchvision expects."""
    name, origin = type(module).__name__, type(module).__module__
    if origin.startswith("torchvision.models."):
        source = f"the ImageNet values of torchvision's {name}"
        return InputSpec(USUAL_SIZE, IMAGENET_MEAN, IMAGENET_STD, source)
    config: Any = getattr(module, "pretrained_cfg", None)
    config = config if isinstance(config, dict) or config is None else vars(config)
    if not config or not config.get("mean"):
        return None
    size = (config.get("input_size") or (3, USUAL_SIZE, USUAL_SIZE))[-1]
    source = f"the pretrained_cfg of {name}"
    mean, std = tuple(config["mean"]), tuple(config["std"])
    crop_pct = config.get("crop_pct") or USUAL_CROP_PCT
    is_squeezed = config.get("crop_mode") == "squash"
    interpolation = config.get("interpolation") or BICUBIC
    return InputSpec(size, mean, std, source, interpolation, crop_pct, is_squeezed)
