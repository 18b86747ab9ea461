import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics import uniformity
from unseen.diagnostics.uniformity import Uniformity

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("rows", [7, 1024])
def test_equals_visiting_every_pair(
    cloud: Data, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uniformity, "ROWS", rows)
    x = unit(cloud[0])
    energy = [
        math.exp(-2 * float((x[i] - x[j]).square().sum())) for i in range(len(x)) for j in range(i)
    ]
    expected = math.log(sum(energy) / len(energy))
    assert Uniformity()(*cloud)["uniformity"] == pytest.approx(expected)


@pytest.mark.parametrize(("size", "expected"), [(2, -1.58), (8, -3.08), (128, -3.94)])
def test_random_directions(size: int, expected: float) -> None:
    x = torch.randn(3000, size, generator=torch.Generator().manual_seed(0))
    assert Uniformity()(x, torch.zeros(3000))["uniformity"] == pytest.approx(expected, abs=0.01)


def test_ends() -> None:
    collapsed = Uniformity()(torch.ones(50, 4), torch.zeros(50))["uniformity"]
    assert collapsed == pytest.approx(0.0, abs=1e-9)
    assert math.isnan(Uniformity()(torch.ones(1, 4), torch.zeros(1))["uniformity"])


def test_draws_with_its_seed() -> None:
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    values = [Uniformity(100, seed)(x, torch.zeros(300))["uniformity"] for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    whole = Uniformity()(x, torch.zeros(300))["uniformity"]
    assert values[0] == pytest.approx(whole, abs=0.1)
    with pytest.raises(ValueError, match="most"):
        Uniformity(1)
