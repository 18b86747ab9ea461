import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.spread import Spread

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


def test_worked_example(four: Data) -> None:
    result = Spread()(*four)
    assert result == pytest.approx({"intra": 0.2, "inter": 1.0, "ratio": 0.2})


def test_equals_visiting_every_pair(cloud: Data) -> None:
    x, y = unit(cloud[0]), cloud[1]
    intra, means = [], []
    for c in y.unique():
        members = x[y == c]
        means.append(members.mean(0) / members.mean(0).norm())
        if len(members) > 1:  # one-image classes are skipped
            dist = [
                1 - float(a @ b)
                for i, a in enumerate(members)
                for j, b in enumerate(members)
                if i != j
            ]
            intra.append(sum(dist) / len(dist))
    inter = [1 - float(a @ b) for i, a in enumerate(means) for j, b in enumerate(means) if i != j]
    result = Spread()(*cloud)
    assert result["intra"] == pytest.approx(sum(intra) / len(intra))
    assert result["inter"] == pytest.approx(sum(inter) / len(inter))
    assert result["ratio"] == pytest.approx(result["intra"] / result["inter"])


def test_euclidean_as_printed_equals_visiting_every_pair(cloud: Data) -> None:
    """One constant for the pairs of all classes, plain means."""
    x, y = unit(cloud[0]), cloud[1]
    inside, means = [], []
    for c in y.unique():
        members = [x[i] for i in range(len(x)) if y[i] == c]
        means.append(sum(members) / len(members))
        inside += [
            float((a - b).square().sum().sqrt())
            for i, a in enumerate(members)
            for j, b in enumerate(members)
            if i != j
        ]
    between = [
        float((a - b).square().sum().sqrt())
        for i, a in enumerate(means)
        for j, b in enumerate(means)
        if i != j
    ]
    result = Spread("euclidean")(*cloud)
    assert result["intra"] == pytest.approx(sum(inside) / len(inside))
    assert result["inter"] == pytest.approx(sum(between) / len(between))
    assert result["ratio"] == pytest.approx(result["intra"] / result["inter"])
    assert math.isnan(Spread("euclidean")(torch.eye(3), torch.arange(3))["intra"])


def test_undefined() -> None:
    with pytest.raises(ValueError, match="distance must be cosine or euclidean, got 'l1'"):
        Spread("l1")  # type: ignore[arg-type]
    assert math.isnan(Spread()(torch.eye(3), torch.arange(3))["intra"])
    assert math.isnan(Spread()(torch.eye(3), torch.zeros(3, dtype=torch.int64))["inter"])
    with pytest.raises(ValueError, match="labels must be 3 integers"):
        Spread()(torch.eye(3), torch.arange(2))
