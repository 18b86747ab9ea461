import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.effective_rank import EffectiveRank

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("centered", [False, True])
def test_equals_the_definition(cloud: Data, centered: bool) -> None:
    x = unit(cloud[0])
    sigma = torch.linalg.svdvals(x - x.mean(0) if centered else x).tolist()
    entropy = -sum(s / sum(sigma) * math.log(s / sum(sigma)) for s in sigma)
    result = EffectiveRank(centered)(*cloud)
    assert result["effective_rank"] == pytest.approx(math.exp(entropy))
    power = [s * s for s in sigma]
    expected = sum(power) ** 2 / sum(p * p for p in power)
    assert result["participation"] == pytest.approx(expected)
    assert result["size"] == 6


def test_ends() -> None:
    y = torch.zeros(6, dtype=torch.int64)
    assert EffectiveRank()(torch.eye(6), y)["effective_rank"] == pytest.approx(6.0)
    assert EffectiveRank()(torch.ones(6, 3), y)["effective_rank"] == pytest.approx(1.0, abs=1e-5)
    assert EffectiveRank()(torch.zeros(6, 3), y)["effective_rank"] == 0.0
