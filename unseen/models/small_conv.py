"""The built-in backbone for small images (32 to 64 px): no weights needed, minutes on a laptop.

A strided stem and three stages, each a strided 3x3 convolution and a residual 3x3 convolution.
GroupNorm has no batch statistics, so an image's embedding never depends on its neighbours in the
batch, and several processes give the gradients of one. Filters are standardised (S. Qiao et al.,
Micro-Batch Training with Batch-Channel Normalization and Weight Standardization, 2019,
https://arxiv.org/abs/1903.10520): a filter that sums to zero does not pass on what all images
share. Without it all embeddings start within a narrow cone and losses with class parameters hardly
leave it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.models.body_spec import InputSpec, Recipe


class StandardConv(nn.Conv2d):
    """A convolution whose filters have mean 0 and length 1."""

    def __init__(self, channels_in: int, channels_out: int, side: int, stride: int = 1) -> None:
        super().__init__(channels_in, channels_out, side, stride, side // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        centered = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        length = centered.square().sum(dim=(1, 2, 3), keepdim=True)
        filters = centered * torch.rsqrt(length + 1e-8)
        return F.conv2d(x, filters, None, self.stride, self.padding)


class Stage(nn.Module):
    """Halves the map and widens it, then refines it in a residual step."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.reduce = StandardConv(channels_in, channels_out, 3, stride=2)
        self.reduce_norm = _norm(channels_out)
        self.refine = StandardConv(channels_out, channels_out, 3)
        self.refine_norm = _norm(channels_out)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.reduce_norm(self.reduce(x)))
        return x + self.refine_norm(self.refine(x))


class SmallConv(nn.Module):
    """A small convolutional network: images [N, 3, s, s] to a map [N, 256, s/16, s/16].

    Example:
        >>> from unseen.models import SmallConv
        >>> SmallConv()(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 256, 2, 2])
    """

    num_features = 256

    def __init__(self) -> None:
        super().__init__()
        width = self.num_features // 8
        self.stem = StandardConv(3, width, 5, stride=2)
        self.stem_norm = _norm(width)
        self.stage1 = Stage(width, 2 * width)
        self.stage2 = Stage(2 * width, 4 * width)
        self.stage3 = Stage(4 * width, 8 * width)

    def forward(self, images: Tensor) -> Tensor:
        x = F.gelu(self.stem_norm(self.stem(images)))
        x = F.gelu(self.stage1(x))
        x = F.gelu(self.stage2(x))
        return self.stage3(x)


def recipe(name: str) -> Recipe:
    return Recipe(_make, SmallConv.num_features, InputSpec(40))


def _make(weights: bool) -> nn.Module:
    if weights:
        raise ValueError("small_conv has no ImageNet weights: leave weights out or name a file")
    return SmallConv()


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(8, channels)
