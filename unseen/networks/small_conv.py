"""The built-in backbone for small pictures (32 to 64 px): trains in minutes, needs no weights.
 A strided stem and three stages, each a strided 3x3 convolution and a residual 3x3 convolution,
with GroupNorm: it has no batch statistics, so a picture's embedding never depends on its neighbours
in the batch, and several processes give the gradients of one.
"""

import torch.nn.functional as F
from torch import Tensor, nn


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(8, channels)


class Stage(nn.Module):
    """Halves the map and widens it, then refines it in a residual step."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1, bias=False)
        self.reduce_norm = _norm(channels_out)
        self.refine = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.refine_norm = _norm(channels_out)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.reduce_norm(self.reduce(x)))
        return F.relu(x + self.refine_norm(self.refine(x)))


class SmallConv(nn.Module):
    """Pictures [N, 3, s, s] to a map [N, 256, s/16, s/16]."""

    num_features = 256

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.num_features = 8 * width
        self.stem = nn.Conv2d(3, width, 5, stride=2, padding=2, bias=False)
        self.stem_norm = _norm(width)
        self.stage1 = Stage(width, 2 * width)
        self.stage2 = Stage(2 * width, 4 * width)
        self.stage3 = Stage(4 * width, 8 * width)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.stem_norm(self.stem(images)))
        return self.stage3(self.stage2(self.stage1(x)))
