"""How the body of a backbone is made, and how it wants its pictures: RGB in [0, 1], minus mean,
over std, at a size.

Networks that were trained on another channel order turn the channels themselves: pictures are RGB
everywhere outside a network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from unseen.networks.weights import State

Channels = tuple[float, float, float]

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)
USUAL_SIZE = 224


@dataclass(frozen=True)
class InputSpec:
    """What a network's pictures must look like; mean and std are of red, green, blue."""

    size: int
    mean: Channels = (0.5, 0.5, 0.5)
    std: Channels = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Recipe:
    """`make(True)` has ImageNet weights; `has_weights()`: they are here without any download.
    classifiers, adapt: how checkpoints of its pretraining are read (`weights.load_weights`)."""

    make: Callable[[bool], nn.Module]
    num_features: int
    input_spec: InputSpec
    classifiers: tuple[str, ...] = ()
    adapt: Callable[[State, nn.Module], State] = lambda state, body: state
    has_weights: Callable[[], bool] = lambda: False


def input_spec_of(module: Any, picture_size: int | None) -> InputSpec:
    """How a module of the user's own wants its pictures."""
    said = getattr(module, "input_spec", InputSpec(USUAL_SIZE))
    if not isinstance(said, InputSpec):
        raise ValueError(
            f"input_spec of {type(module).__name__} must be an unseen.networks.InputSpec, "
            f"got {said!r}"
        )
    return InputSpec(picture_size or said.size, said.mean, said.std)
