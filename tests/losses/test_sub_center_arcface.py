import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.losses import SubCenterArcFaceLoss
from torch import Tensor

from unseen.losses.arcface import ArcfaceLoss
from unseen.losses.sub_center_arcface import SubCenterArcfaceLoss


def with_weight(weight: Tensor, **values: float) -> SubCenterArcfaceLoss:
    classes, centers, size = weight.shape
    loss = SubCenterArcfaceLoss(classes, size, centers, **values).to(weight.dtype)  # type: ignore[arg-type]
    loss.weight.data.copy_(weight)
    return loss


def angle(x: Tensor, w: Tensor) -> float:
    return math.acos(max(-1.0, min(1.0, float(x @ w / (x.norm() * w.norm())))))


def slow(x: Tensor, y: Tensor, w: Tensor, scale: float, margin: float) -> list[float]:
    """The price of each item; w: [C, K, D]."""
    prices = []
    for i in range(len(x)):
        logits = []
        for c in range(len(w)):
            theta = min(angle(x[i], w[c, k]) for k in range(w.shape[1]))
            cos = math.cos(theta)
            if c == y[i] and theta < math.pi - margin:
                cos = math.cos(theta + margin)
            elif c == y[i]:
                cos -= margin * math.sin(margin)
            logits.append(scale * cos)
        prices.append(math.log(sum(math.exp(z - logits[int(y[i])]) for z in logits)))
    return prices


def drawn(seed: int, centers: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    w = torch.randn(4, centers, 3, generator=generator, dtype=torch.float64)
    return x, torch.tensor([0, 1, 1, 2, 2, 2, 0, 3, 1, 3, 3, 3]), w


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("margin", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("centers", [1, 3])
def test_equals_a_slow_loop(seed: int, margin: float, centers: int) -> None:
    x, y, w = drawn(seed, centers)
    prices = slow(x, y, w, 5.0, margin)
    result = with_weight(w, scale=5.0, margin=margin)(x, y)
    assert result.item() == pytest.approx(sum(prices) / len(x), rel=1e-9)


def test_one_sub_center_is_arcface(spec: SimpleNamespace) -> None:
    arcface = ArcfaceLoss(*spec.PX.shape, scale=16.0).double()
    arcface.weight.data.copy_(spec.PX)
    result = with_weight(spec.PX[:, None], scale=16.0)(spec.T, spec.labels)
    assert result.item() == pytest.approx(0.195804, abs=1e-6)  # the number of test_arcface.py
    assert result.item() == pytest.approx(arcface(spec.T, spec.labels).item(), rel=1e-12)


def test_equals_pytorch_metric_learning() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 8, generator=generator)
    y = torch.randint(6, (40,), generator=generator)
    w = torch.randn(6, 3, 8, generator=generator)
    theirs = SubCenterArcFaceLoss(
        num_classes=6, embedding_size=8, margin=28.6, scale=16, sub_centers=3
    )
    theirs.W.data.copy_(w.flatten(0, 1).T)
    ours = with_weight(w, scale=16.0, margin=math.radians(28.6))
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item(), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_dropping_equals_a_slow_loop(seed: int) -> None:
    """Three steps that count, from the second on; then what is left is that of a loop."""
    x, y, w = drawn(seed)
    loss = with_weight(w, scale=5.0, drop_after=4, drop_angle=1.2)
    counts = [[0] * 3 for _ in range(4)]
    for step in range(4):
        batch = x.roll(step, dims=1)
        whole = slow(batch, y, w, 5.0, 0.5)
        assert loss(batch, y).item() == pytest.approx(sum(whole) / 12, rel=1e-9)
        for i in range(12 if step >= 2 else 0):
            angles = [angle(batch[i], w[int(y[i]), k]) for k in range(3)]
            counts[int(y[i])][angles.index(min(angles))] += 1
    dominant = [c.index(max(c)) for c in counts]
    left = torch.stack([w[c, dominant[c]] for c in range(4)])
    near = [i for i in range(12) if angle(x[i], left[int(y[i])]) <= 1.2]
    assert 0 < len(near) < 12
    expected = sum(slow(x[near], y[near], left[:, None], 5.0, 0.5)) / len(near)
    assert loss(x, y).item() == pytest.approx(expected, rel=1e-9)


def test_a_batch_of_strays_costs_nothing_and_has_a_gradient() -> None:
    loss = with_weight(torch.eye(2)[:, None], drop_after=1, drop_angle=0.1)
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    loss(x, torch.tensor([0, 1])).backward()
    price = loss(x, torch.tensor([0, 1]))
    price.backward()
    assert price.item() == 0
    assert x.grad is not None


def test_counts_go_on_where_they_were() -> None:
    x, y, w = drawn(5)
    whole, first, second = (with_weight(w, drop_after=4) for _ in range(3))
    expected = [whole(x.roll(step, dims=1), y).item() for step in range(6)]
    for step in range(3):
        first(x.roll(step, dims=1), y)
    second.load_state_dict(first.state_dict())
    assert [second(x.roll(step, dims=1), y).item() for step in range(3, 6)] == expected[3:]


def test_gradient_of_what_is_left() -> None:
    x, y, w = drawn(1)
    loss = with_weight(w, scale=5.0, drop_after=1, drop_angle=1.2)
    loss(x, y)
    loss.num_steps.fill_(1)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(x, y), (x,))


@pytest.mark.parametrize(
    "wrong",
    [{"scale": 0.0}, {"margin": -0.1}, {"margin": 28.6}, {"drop_angle": 75.0}, {"drop_after": 0}],
)
def test_bad_values(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SubCenterArcfaceLoss(3, 2, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="centers"):
        SubCenterArcfaceLoss(3, 2, centers=0)
