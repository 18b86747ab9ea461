import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.alignment import Alignment

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


def test_equals_visiting_every_pair(cloud: Data) -> None:
    x, y = unit(cloud[0]), cloud[1]
    dist = [
        float((x[i] - x[j]).square().sum()) for i in range(len(x)) for j in range(i) if y[i] == y[j]
    ]
    assert Alignment()(*cloud)["alignment"] == pytest.approx(sum(dist) / len(dist))


def test_ends(four: Data) -> None:
    assert Alignment()(*four)["alignment"] == pytest.approx(0.4)
    assert Alignment()(torch.ones(4, 3), four[1])["alignment"] == pytest.approx(0.0, abs=1e-12)
    assert math.isnan(Alignment()(torch.eye(3), torch.arange(3))["alignment"])
