import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.losses import ArcFaceLoss
from torch import Tensor

from unseen.losses.arcface import ArcfaceLoss, turned


def with_weight(weight: Tensor, **values: float) -> ArcfaceLoss:
    loss = ArcfaceLoss(*weight.shape, **values).to(weight.dtype)  # type: ignore[arg-type]
    loss.weight.data.copy_(weight)
    return loss


def slow(x: Tensor, y: Tensor, w: Tensor, scale: float, margin: float, clamp: bool) -> float:
    total = 0.0
    for i in range(len(x)):
        logits = []
        for c in range(len(w)):
            cos = float(x[i] @ w[c] / (x[i].norm() * w[c].norm()))
            cos = max(cos, 1e-10) if clamp else cos
            theta = math.acos(max(-1.0, min(1.0, cos)))
            if c == y[i] and theta < math.pi - margin:
                cos = math.cos(theta + margin)
            elif c == y[i]:
                cos -= margin * math.sin(margin)
            logits.append(scale * cos)
        total += math.log(sum(math.exp(z - logits[int(y[i])]) for z in logits))
    return total / len(x)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"scale": 16.0, "margin": 0.5}, 0.195804),
        ({"scale": 64.0, "margin": math.radians(28.6)}, 0.533528),
        ({"scale": 16.0, "margin": 0.0}, 0.002462),
    ],
)
def test_published_numbers(
    spec: SimpleNamespace, values: dict[str, float], expected: float
) -> None:
    loss = with_weight(spec.PX, **values)
    assert loss(spec.T, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss.float()(spec.T.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


def test_class_vectors_equal_to_the_embedding(spec: SimpleNamespace) -> None:
    loss = with_weight(spec.COL[:3], scale=16.0, margin=0.5)
    expected = math.log(1 + 2 * math.exp(16 * (1 - math.cos(0.5))))
    assert expected == pytest.approx(2.719973, abs=1e-6)
    # the sine is kept at 1e-6 here, for a finite gradient
    assert loss(spec.COL, spec.labels).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("margin", [0.0, 0.5, 2.0])
def test_equals_a_slow_loop(seed: int, clamp: bool, margin: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    w = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 2, 2, 2, 0, 3, 1, 3, 3, 3])
    expected = slow(x, y, w, 5.0, margin, clamp)
    loss = with_weight(w, scale=5.0, margin=margin, clamp=clamp)
    assert loss(x, y).item() == pytest.approx(expected, rel=1e-9)


def test_equals_pytorch_metric_learning() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 8, generator=generator)
    y = torch.randint(6, (40,), generator=generator)
    w = torch.randn(6, 8, generator=generator)
    theirs = ArcFaceLoss(6, 8, margin=28.6, scale=16)
    theirs.W.data.copy_(w.T)
    ours = with_weight(w, scale=16.0, margin=math.radians(28.6))
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item(), rel=1e-5)


def test_own_logit_falls_with_the_angle_all_the_way() -> None:
    cos = torch.linspace(1, -1, 2001, dtype=torch.float64)
    assert (turned(cos, 0.5)[0].diff() < 0).all()


def test_grows_with_the_margin(spec: SimpleNamespace) -> None:
    prices = [
        with_weight(spec.PX, margin=m)(spec.T, spec.labels).item() for m in (0, 0.1, 0.3, 0.5)
    ]
    assert prices == sorted(prices)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_finite_gradient_on_and_opposite_the_class_vector(sign: float) -> None:
    x = torch.tensor([[sign, 0.0], [sign, 0.0]], requires_grad=True)
    loss = with_weight(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    loss(x, torch.tensor([0, 0])).backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert loss.weight.grad is not None
    assert torch.isfinite(loss.weight.grad).all()


def test_starts_within_the_bound_of_a_linear_layer() -> None:
    weight = ArcfaceLoss(500, 16).weight.detach()
    assert weight.abs().max() <= 0.25
    assert weight.std() == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("wrong", [{"scale": 0.0}, {"margin": -0.1}, {"margin": 28.6}])
def test_bad_values(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ArcfaceLoss(3, 2, **wrong)  # type: ignore[arg-type]
