"""Metrix: mixtures against loops over anchors, positives, negatives and shares."""

import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Output
from unseen.losses import smooth_ap
from unseen.regularizers.metrix import MetrixRegularizer, beta_nodes

LABELS = torch.tensor([3, 0, 1, 1, 0, 2, 1, 3, 1])


def rows(seed: int = 0, count: int = 9) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, generator=draw, dtype=torch.float64)


def slow(x: Tensor, y: Tensor, part: MetrixRegularizer) -> float:
    unit = [row / row.norm() for row in x]
    total = 0.0
    for fraction, weight in part.fractions:
        for a in range(len(x)):
            near = far = 0.0
            for p in range(len(x)):
                for n in range(len(x)):
                    if p == a or y[p] != y[a] or y[n] == y[a]:
                        continue
                    mixed = fraction * unit[p] + (1 - fraction) * unit[n]
                    s = float(unit[a] @ (mixed / mixed.norm()))
                    near += fraction * math.exp(-part.alpha * (s - part.base))
                    far += (1 - fraction) * math.exp(part.beta * (s - part.base))
            price = math.log(1 + near) / part.alpha + math.log(1 + far) / part.beta
            total += weight * price / len(x)
    return total


@pytest.mark.parametrize("block", [1, 40, 1 << 18])
@pytest.mark.parametrize("nodes", [1, 3])
def test_equals_a_slow_loop(nodes: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smooth_ap, "_ENTRIES", block)
    part, x = MetrixRegularizer(3.0, 11.0, 0.2, nodes=nodes), rows()
    assert part(Output(x, x), LABELS).item() == pytest.approx(slow(x, LABELS, part), rel=1e-9)


def test_gradient_through_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smooth_ap, "_ENTRIES", 5)
    part, x = MetrixRegularizer(3.0, 7.0, nodes=2), rows(1, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: part(Output(x, x), LABELS[:5]), x)


@pytest.mark.parametrize("concentration", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("nodes", [1, 2, 3, 6])
def test_the_shares_have_the_moments_of_the_distribution(concentration: float, nodes: int) -> None:
    result = beta_nodes(concentration, nodes)
    expected = 1.0
    for power in range(2 * nodes):
        got = sum(weight * fraction**power for fraction, weight in result)
        assert got == pytest.approx(expected, rel=1e-12)
        expected *= (concentration + power) / (2 * concentration + power)


def test_a_node_is_the_middle_of_a_draw() -> None:
    """Against drawn shares, as the paper has them."""
    x, draws = rows(2), torch.distributions.Beta(2.0, 2.0).sample(torch.Size([400])).tolist()
    part = MetrixRegularizer(2.0, 10.0)
    exact = part(Output(x, x), LABELS).item()
    part.fractions = [(fraction, 1 / 400) for fraction in draws]
    assert part(Output(x, x), LABELS).item() == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("bad", ["alpha", "beta", "concentration", "nodes"])
def test_bad_values(bad: str) -> None:
    with pytest.raises(ValueError, match=bad):
        MetrixRegularizer(**{bad: 0})  # type: ignore[arg-type]
