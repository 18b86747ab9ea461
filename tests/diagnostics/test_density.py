import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.density import Density

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


def test_equals_the_definition(cloud: Data) -> None:
    x, y = unit(cloud[0]), cloud[1]
    expected = {
        int(c): float((x[y == c] - x[y == c].mean(0)).square().sum(1).mean())
        for c in y.unique()
        if (y == c).sum() > 1
    }
    result = Density()(*cloud)
    assert result["classes"].tolist() == list(expected)
    assert result["density"].tolist() == pytest.approx(list(expected.values()))
    assert result["mean"] == pytest.approx(sum(expected.values()) / len(expected))


def test_worked_example(four: Data) -> None:
    assert Density()(*four)["density"].tolist() == pytest.approx([0.1, 0.1])
    assert math.isnan(Density()(torch.eye(3), torch.arange(3))["mean"])
