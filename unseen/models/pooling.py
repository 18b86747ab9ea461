"""From a map or tokens to one vector: what stays of the places."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from unseen.core.geometry import full_precision

PoolingName = Literal["avg", "max", "avg+max", "gem"]  # of a map, or of the tokens of patches
POOLINGS: tuple[str, ...] = get_args(PoolingName)
CLS, CLS_AND_MEAN, ATTENTION = "cls", "cls+avg", "attention"
OF_TOKENS = (CLS, CLS_AND_MEAN, ATTENTION)


def create_pooling(name: str) -> nn.Module:
    """Maps [N, C, H, W] to [N, C].

    Formula:
        avg      mean over places
        max      maximum over places
        avg+max  their sum (Proxy-Anchor's and Psomas's networks)
        gem      (mean of x^p)^(1/p), x at least 1e-6, p learned from 3 on;
                 p = 1 is avg, p to infinity max

    Paper:
        gem: F. Radenovic et al., Fine-tuning CNN Image Retrieval with No Human Annotation, TPAMI
        2019, https://arxiv.org/abs/1711.02512

    Use:
        max or avg+max for small details, avg where moments of the map are used beside it (HORDE).
    """
    makers = {"avg": Average, "max": Maximum, "avg+max": AveragePlusMaximum, "gem": GeneralizedMean}
    if name not in makers:
        raise ValueError(f"pooling must be one of {', '.join(makers)}, got {name!r}")
    made: nn.Module = makers[name]()
    return made


class Average(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


class Maximum(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.amax(dim=(2, 3))


class AveragePlusMaximum(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


class GeneralizedMean(nn.Module):
    """p: the power it starts from; learned, one for all channels."""

    def __init__(self, p: float = 3.0) -> None:
        super().__init__()
        if p <= 0:
            raise ValueError(f"p must be positive, got {p}")
        self.p = nn.Parameter(torch.tensor(float(p)))

    def forward(self, maps: Tensor) -> Tensor:
        with torch.autocast(maps.device.type, enabled=False):
            logs = full_precision(maps).clamp(min=1e-6).log()  # powers overflow, logarithms do not
            count = maps.shape[2] * maps.shape[3]
            mean = torch.logsumexp(self.p * logs, dim=(2, 3)) - math.log(count)
            return (mean / self.p).exp()
