"""BN-Inception: the backbone of Proxy-NCA, Proxy-Anchor, multi-similarity and many others.

Paper    S. Ioffe, C. Szegedy, Batch Normalization, ICML 2015, https://arxiv.org/abs/1502.03167
Names    those of the common checkpoint (bn_inception-52deb4733; in the older bn_inception-239d2248
         the batch norms' tensors are 1xC and are flattened): `inception_3a_1x1`,
         `inception_3a_1x1_bn`, ...; a block's joined output is the layer `inception_3a_output`.
Input    trained on BGR in 0..255 minus (104, 117, 128): images come as RGB and `to_bgr` turns
         them.
Values   batch norm momentum 0.1. The usual port says 0.9, which in PyTorch lets running statistics
         follow the last batch; its ReLUs count only because they overwrite their input, ours pass
         their output on.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from unseen.models.body_spec import InputSpec, Recipe
from unseen.models.weights import State, load_weights

CLASSIFIERS = ("last_linear", "fc")
MEAN = (128 / 255, 117 / 255, 104 / 255)  # red, green, blue
STD = (1 / 255, 1 / 255, 1 / 255)

# block: 1x1, (3x3 reduce, 3x3), (double 3x3 reduce, double 3x3), pool projection.
# 0: the branch is absent; a block without a projection halves the map.
BLOCKS = {
    "3a": (64, (64, 64), (64, 96), 32),
    "3b": (64, (64, 96), (64, 96), 64),
    "3c": (0, (128, 160), (64, 96), 0),
    "4a": (224, (64, 96), (96, 128), 128),
    "4b": (192, (96, 128), (96, 128), 128),
    "4c": (160, (128, 160), (128, 160), 128),
    "4d": (96, (128, 192), (160, 192), 128),
    "4e": (0, (128, 192), (192, 256), 0),
    "5a": (352, (192, 320), (160, 224), 128),
    "5b": (352, (192, 320), (192, 224), 128),
}
MAX_POOLED = ("3c", "4e", "5b")  # the other blocks' pool branch averages


class BnInception(nn.Module):
    """BN-Inception: images [N, 3, s, s] to a map [N, 1024, s/32, s/32].

    Example:
        >>> from unseen.models import BnInception
        >>> BnInception()(torch.zeros(1, 3, 64, 64)).shape
        torch.Size([1, 1024, 2, 2])
    """

    num_features = 1024

    def __init__(self) -> None:
        super().__init__()
        self.to_bgr = ReverseChannels()
        self._unit("conv1_7x7_s2", 3, 64, 7, stride=2)
        self.pool1_3x3_s2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self._unit("conv2_3x3_reduce", 64, 64, 1)
        self._unit("conv2_3x3", 64, 192, 3)
        self.pool2_3x3_s2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        channels = 192
        for block in BLOCKS:
            channels = self._block(block, channels)

    def forward(self, images: Tensor) -> Tensor:
        x = self._run(self.to_bgr(images), "conv1_7x7_s2")
        x = self._run(self.pool1_3x3_s2(x), "conv2_3x3_reduce", "conv2_3x3")
        x = self.pool2_3x3_s2(x)
        for block in BLOCKS:
            outputs = [self._branch(x, branch) for branch in _branches(block)]
            x = self.get_submodule(f"inception_{block}_output")(*outputs)
        return x

    def _branch(self, x: Tensor, names: list[str]) -> Tensor:
        if names[0].endswith("_pool"):
            return self._run(self.get_submodule(names[0])(x), *names[1:])
        return self._run(x, *names)

    def _run(self, x: Tensor, *names: str) -> Tensor:
        for name in names:
            x = self.get_submodule(f"{name}_bn")(self.get_submodule(name)(x))
            x = self.get_submodule(_relu(name))(x)
        return x

    def _unit(self, name: str, before: int, after: int, kernel: int, stride: int = 1) -> int:
        """A convolution with bias, its batch norm and its ReLU."""
        self.add_module(name, nn.Conv2d(before, after, kernel, stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(after, momentum=0.1))
        self.add_module(_relu(name), nn.ReLU())
        return after

    def _block(self, block: str, channels: int) -> int:
        """Adds a block's layers; returns how many channels leave it."""
        single, (small, wide), (narrow, double), projection = BLOCKS[block]
        stride = 1 if projection else 2
        name = f"inception_{block}"
        joined = self._unit(f"{name}_1x1", channels, single, 1) if single else 0
        self._unit(f"{name}_3x3_reduce", channels, small, 1)
        joined += self._unit(f"{name}_3x3", small, wide, 3, stride)
        self._unit(f"{name}_double_3x3_reduce", channels, narrow, 1)
        self._unit(f"{name}_double_3x3_1", narrow, double, 3)
        joined += self._unit(f"{name}_double_3x3_2", double, double, 3, stride)
        self.add_module(f"{name}_pool", _pool(block, stride))
        joined += (
            self._unit(f"{name}_pool_proj", channels, projection, 1) if projection else channels
        )
        self.add_module(f"{name}_output", Join())
        return joined


class ReverseChannels(nn.Module):
    """RGB to BGR."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flip(1)


class Join(nn.Module):
    """Branches side by side; a layer, so that a block's output has a name."""

    def forward(self, *branches: Tensor) -> Tensor:
        return torch.cat(branches, dim=1)


def recipe(name: str) -> Recipe:
    spec, adapt = InputSpec(224, MEAN, STD), lambda state, body: flattened_norms(state)
    result = Recipe(_make, BnInception.num_features, spec, CLASSIFIERS, adapt)
    return replace(result, has_weights=lambda: weights_file().is_file())


def weights_file() -> Path:
    """Where `weights=imagenet` looks for them: beside those that torchvision downloads."""
    return Path(torch.hub.get_dir()) / "checkpoints" / "bn_inception-52deb4733.pth"


def _make(weights: bool) -> nn.Module:
    body, file = BnInception(), weights_file()
    if weights and not file.is_file():
        raise ValueError(
            "the ImageNet weights of bn_inception are not published as a package: "
            f"give weights=FILE ({file.name}), or put that file into {file.parent}"
        )
    if weights:
        load_weights(body, str(file), CLASSIFIERS, flattened_norms)
    return body


def flattened_norms(state: State) -> State:
    """The older checkpoint stores batch norms as [1, C]."""
    return {
        key: value.squeeze(0) if "_bn." in key and value.ndim == 2 else value
        for key, value in state.items()
    }


def _branches(block: str) -> Iterator[list[str]]:
    """The layers of each branch, in the order their outputs are joined."""
    single, _, _, projection = BLOCKS[block]
    name = f"inception_{block}"
    if single:
        yield [f"{name}_1x1"]
    yield [f"{name}_3x3_reduce", f"{name}_3x3"]
    yield [f"{name}_double_3x3_{end}" for end in ("reduce", "1", "2")]
    yield [f"{name}_pool", f"{name}_pool_proj"] if projection else [f"{name}_pool"]


def _pool(block: str, stride: int) -> nn.Module:
    padding = 1 if stride == 1 else 0
    if block in MAX_POOLED:
        return nn.MaxPool2d(3, stride, padding, ceil_mode=True)
    return nn.AvgPool2d(3, stride, padding, ceil_mode=True)


def _relu(name: str) -> str:
    """inception_3a_1x1 -> inception_3a_relu_1x1, as in the checkpoint's source network."""
    parts = name.split("_")
    place = 2 if parts[0] == "inception" else 1
    return "_".join([*parts[:place], "relu", *parts[place:]])
