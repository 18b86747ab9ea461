import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.hubness import Hubness

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("normalize", [True, False])
def test_equals_counting_by_hand(cloud: Data, normalize: bool) -> None:
    x, y = cloud
    z = unit(x) if normalize else x.double()
    counts = [0] * len(z)
    for i in range(len(z)):
        dist = [(float((z[i] - z[j]).square().sum()), j) for j in range(len(z)) if j != i]
        for _, j in sorted(dist)[:5]:
            counts[j] += 1
    result = Hubness(5, normalize)(x, y)
    assert result["counts"].tolist() == counts
    mean = sum(counts) / len(counts)
    std = math.sqrt(sum((c - mean) ** 2 for c in counts) / len(counts))
    skewness = sum((c - mean) ** 3 for c in counts) / len(counts) / std**3
    assert result["skewness"] == pytest.approx(skewness)
    assert result["orphans"] == pytest.approx(counts.count(0) / len(counts))
    assert result["largest"] == max(counts) / 5


def test_a_hub_in_many_dimensions() -> None:
    """The mean of everything is near everything."""
    x = torch.randn(400, 64, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    result = Hubness(normalize=False)(x, torch.zeros(400))
    assert result["largest"] > 20
    assert result["skewness"] > 5


def test_bad_k() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        Hubness(0)
    with pytest.raises(ValueError, match="below the number of items"):
        Hubness(5)(torch.eye(5), torch.zeros(5))
