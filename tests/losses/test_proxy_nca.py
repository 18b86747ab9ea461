import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.losses import ProxyNCALoss
from torch import Tensor

from unseen.losses.proxy_nca import ProxyNcaLoss


def with_proxies(
    proxies: Tensor, scale: float = 9.0, include_positive: bool = False
) -> ProxyNcaLoss:
    loss = ProxyNcaLoss(*proxies.shape, scale, include_positive).to(proxies.dtype)
    loss.proxies.data.copy_(proxies)
    return loss


def slow(x: Tensor, y: Tensor, proxies: Tensor, scale: float, include_positive: bool) -> float:
    total = 0.0
    for i in range(len(x)):
        q = [float(((x[i] / x[i].norm() - p / p.norm()) ** 2).sum()) for p in proxies]
        own = int(y[i])
        others = [c for c in range(len(proxies)) if include_positive or c != own]
        total += scale * q[own] + math.log(sum(math.exp(-scale * q[c]) for c in others))
    return total / len(x)


@pytest.mark.parametrize(
    ("scale", "include_positive", "expected"),
    [(9.0, False, -15.918570), (1.0, False, -1.523445), (1.0, True, 0.226014)],
)
def test_published_numbers(
    spec: SimpleNamespace, scale: float, include_positive: bool, expected: float
) -> None:
    loss = with_proxies(spec.PX, scale, include_positive)
    assert loss(spec.T, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss.float()(spec.T.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("include_positive", "number"), [(False, 2), (True, 3)])
def test_equal_proxies_cost_log_of_their_number(
    spec: SimpleNamespace, include_positive: bool, number: int
) -> None:
    loss = with_proxies(spec.COL[:3], include_positive=include_positive)
    assert loss(spec.T, spec.labels).item() == pytest.approx(math.log(number))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("include_positive", [False, True])
def test_equals_a_slow_loop(seed: int, include_positive: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    proxies = torch.randn(4, 8, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 2, 2, 2, 0, 3, 1, 3, 3, 3])
    expected = slow(x, y, proxies, 3.0, include_positive)
    loss = with_proxies(proxies, 3.0, include_positive)
    assert loss(x, y).item() == pytest.approx(expected, rel=1e-9)


def test_equals_pytorch_metric_learning() -> None:
    generator = torch.Generator().manual_seed(3)
    x, proxies = torch.randn(40, 8, generator=generator), torch.randn(6, 8, generator=generator)
    y = torch.randint(6, (40,), generator=generator)
    theirs = ProxyNCALoss(6, 8, softmax_scale=32)
    theirs.proxies.data.copy_(proxies)
    ours = with_proxies(proxies, 32.0, True)
    assert ours(x, y).item() == pytest.approx(theirs(x, y).item(), rel=1e-5)


@pytest.mark.parametrize("include_positive", [False, True])
def test_gradient_of_both_forms(include_positive: bool) -> None:
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loss = ProxyNcaLoss(3, 4, 1.0, include_positive).double()
    y = torch.arange(6) % 3
    assert torch.autograd.gradcheck(lambda e, _: loss(e, y), (x.requires_grad_(), loss.proxies))


def test_proxies_start_with_deviation_one_eighth() -> None:
    assert ProxyNcaLoss(500, 16).proxies.std().item() == pytest.approx(1 / 8, rel=0.05)


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="scale"):
        ProxyNcaLoss(3, 2, scale=0.0)
    with pytest.raises(ValueError, match="num_classes"):
        ProxyNcaLoss(1, 2)
