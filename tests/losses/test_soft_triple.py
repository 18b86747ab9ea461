import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_metric_learning.losses import SoftTripleLoss as PeerLoss
from torch import Tensor

from unseen.losses.normalized_softmax import NormalizedSoftmaxLoss
from unseen.losses.soft_triple import SoftTripleLoss


def with_centers(centers: Tensor, **values: Any) -> SoftTripleLoss:
    num_classes, num_centers, size = centers.shape
    loss = SoftTripleLoss(num_classes, size, num_centers, **values).to(centers.dtype)
    loss.centers.data.copy_(centers)
    return loss


def slow(x: Tensor, y: Tensor, centers: Tensor, values: dict[str, float]) -> float:
    num_classes, num_centers, _ = centers.shape
    w = [[c / c.norm() for c in group] for group in centers]
    total = 0.0
    for i in range(len(x)):
        logits = []
        for c in range(num_classes):
            sims = [float(x[i] / x[i].norm() @ v) for v in w[c]]
            weights = [math.exp(s / values["temperature"]) for s in sims]
            sim = sum(a * s for a, s in zip(weights, sims, strict=True)) / sum(weights)
            logits.append(values["scale"] * (sim - (values["margin"] if c == y[i] else 0)))
        total += math.log(sum(math.exp(z - logits[int(y[i])]) for z in logits)) / len(x)
    spread = 0.0
    for c in range(num_classes):
        for k in range(num_centers):
            for other in range(k + 1, num_centers):
                spread += math.sqrt(2 + 1e-5 - 2 * float(w[c][k] @ w[c][other]))
    if num_centers > 1:
        spread /= num_classes * num_centers * (num_centers - 1)
    return total + values["tau"] * spread


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"scale": 8.0, "tau": 0.0}, 0.206944),
        ({"scale": 8.0}, 0.301318),
        ({}, 0.235962),
        ({"margin": 0.1}, 0.573611),
        (SoftTripleLoss.PRESETS["thesis_tuned"], 9.624694),
    ],
)
def test_published_numbers(
    spec: SimpleNamespace, values: dict[str, float], expected: float
) -> None:
    loss = with_centers(spec.CT, **{k: v for k, v in values.items() if k != "centers"})
    assert loss(spec.T, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss.float()(spec.T.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


def test_spread_of_the_centers(spec: SimpleNamespace) -> None:
    loss = with_centers(spec.CT)
    assert loss._spread(spec.CT).item() == pytest.approx(0.471868, abs=1e-6)
    same = spec.COL[:, None].view(3, 2, 2)
    assert loss._spread(same).item() == pytest.approx(math.sqrt(1e-5) / 2, abs=1e-8)


def test_equal_centers(spec: SimpleNamespace) -> None:
    loss = with_centers(spec.COL.view(3, 2, 2), scale=8.0, tau=0.0)
    expected = math.log(1 + 2 * math.exp(8 * 0.01))
    assert expected == pytest.approx(1.152650, abs=1e-6)
    assert loss(spec.T, spec.labels).item() == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_centers", [1, 2, 5])
def test_equals_a_slow_loop(seed: int, num_centers: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    centers = torch.randn(4, num_centers, 8, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 2, 2, 2, 0, 3, 1, 3, 3, 3])
    values = {"scale": 5.0, "temperature": 0.3, "margin": 0.2, "tau": 1.0}
    expected = slow(x, y, centers, values)
    assert with_centers(centers, **values)(x, y).item() == pytest.approx(expected, rel=1e-9)


def test_one_center_is_the_normalized_softmax(spec: SimpleNamespace) -> None:
    plain = NormalizedSoftmaxLoss(3, 2, temperature=1 / 8).double()
    plain.weight.data.copy_(spec.PX)
    loss = with_centers(spec.PX[:, None], scale=8.0, margin=0.0, tau=0.0)
    assert loss(spec.T, spec.labels).item() == pytest.approx(plain(spec.T, spec.labels).item())


def test_low_temperature_takes_the_nearest_center(spec: SimpleNamespace) -> None:
    loss = with_centers(spec.CT, temperature=1e-4, tau=0.0, margin=0.0)
    nearest = torch.einsum("nd,ckd->nck", spec.T, spec.CT).amax(dim=2)
    expected = torch.nn.functional.cross_entropy(20 * nearest, spec.labels)
    assert loss(spec.T, spec.labels).item() == pytest.approx(expected.item(), abs=1e-6)


def test_equals_pytorch_metric_learning() -> None:
    generator = torch.Generator().manual_seed(3)
    x, centers = torch.randn(40, 8, generator=generator), torch.randn(6, 3, 8, generator=generator)
    y = torch.randint(6, (40,), generator=generator)
    theirs = PeerLoss(6, 8, centers_per_class=3, la=20, gamma=0.1, margin=0.01)
    theirs.fc.data.copy_(centers.flatten(0, 1).T)
    ours = with_centers(centers, tau=0.0)
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item(), rel=1e-5)


@pytest.mark.parametrize("num_centers", [1, 3])
def test_gradient(num_centers: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    centers = torch.randn(3, num_centers, 4, generator=generator, dtype=torch.float64)
    loss, y = with_centers(centers, scale=3.0, temperature=0.3), torch.arange(6) % 3
    assert torch.autograd.gradcheck(lambda e, _: loss(e, y), (x, loss.centers))


def test_gradient_with_merged_centers(spec: SimpleNamespace) -> None:
    centers = spec.CT.clone()
    centers[0, 1] = centers[0, 0]
    x = spec.T.float().requires_grad_()
    loss = with_centers(centers.float())
    loss(x, spec.labels).backward()
    assert loss.centers.grad is not None
    assert torch.isfinite(loss.centers.grad).all()


@pytest.mark.parametrize(
    "wrong", [{"centers": 0}, {"scale": 0.0}, {"temperature": -1.0}, {"tau": -0.1}]
)
def test_bad_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SoftTripleLoss(3, 2, **wrong)
