import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.losses import ProxyAnchorLoss as PeerLoss
from torch import Tensor

from unseen.losses.proxy_anchor import ProxyAnchorLoss


def with_proxies(proxies: Tensor, alpha: float = 32.0, delta: float = 0.1) -> ProxyAnchorLoss:
    loss = ProxyAnchorLoss(*proxies.shape, alpha, delta).to(proxies.dtype)
    loss.proxies.data.copy_(proxies)
    return loss


def slow(x: Tensor, y: Tensor, proxies: Tensor, alpha: float, delta: float) -> float:
    pull, push, present = 0.0, 0.0, 0
    for c in range(len(proxies)):
        inside, custom_components = 0.0, 0.0
        for i in range(len(x)):
            cos = float(x[i] @ proxies[c] / (x[i].norm() * proxies[c].norm()))
            if y[i] == c:
                inside += math.exp(-alpha * (cos - delta))
            else:
                custom_components += math.exp(alpha * (cos + delta))
        present += int((y == c).any())
        pull += math.log(1 + inside)
        push += math.log(1 + custom_components)
    return pull / present + push / len(proxies)


@pytest.mark.parametrize(
    ("proxies", "alpha", "expected"),
    [
        ("PX", 2.0, 1.868247),
        ("PX", 32.0, 13.498369),
        ("PX4", 2.0, 2.179063),
        ("PX4", 32.0, 17.852002),
    ],
)
def test_published_numbers(
    spec: SimpleNamespace, proxies: str, alpha: float, expected: float
) -> None:
    loss = with_proxies(getattr(spec, proxies), alpha)
    assert loss(spec.T, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss.float()(spec.T.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


def test_orthogonal_proxies(spec: SimpleNamespace) -> None:
    proxies = torch.eye(4, dtype=torch.float64)[1:]
    embeddings = torch.eye(4, dtype=torch.float64)[:1].repeat(6, 1)
    expected = math.log(1 + 2 * math.exp(3.2)) + math.log(1 + 4 * math.exp(3.2))
    assert expected == pytest.approx(8.509757, abs=1e-6)
    assert with_proxies(proxies)(embeddings, spec.labels).item() == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delta", [0.0, 0.1, 0.4])
def test_equals_a_slow_loop(seed: int, delta: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    proxies = torch.randn(6, 8, generator=generator, dtype=torch.float64)  # classes 1, 4 are absent
    y = torch.tensor([0, 3, 3, 2, 2, 2, 0, 3, 5, 3, 3, 3])
    expected = slow(x, y, proxies, 4.0, delta)
    assert with_proxies(proxies, 4.0, delta)(x, y).item() == pytest.approx(expected, rel=1e-9)


def test_equals_pytorch_metric_learning() -> None:
    generator = torch.Generator().manual_seed(3)
    x, proxies = torch.randn(40, 8, generator=generator), torch.randn(9, 8, generator=generator)
    y = torch.randint(6, (40,), generator=generator)
    theirs = PeerLoss(9, 8, margin=0.1, alpha=32)
    theirs.proxies.data.copy_(proxies)
    assert with_proxies(proxies)(x, y).item() == pytest.approx(theirs(x, y).item(), rel=1e-5)


def test_a_batch_of_one_class_has_a_finite_gradient() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y = torch.zeros(4, dtype=torch.int64)
    loss = ProxyAnchorLoss(3, 3, alpha=2.0).double()
    assert torch.autograd.gradcheck(lambda e, _: loss(e, y), (x, loss.proxies))


def test_proxies_learn_a_hundred_times_as_fast() -> None:
    (group,) = ProxyAnchorLoss(3, 2).parameter_groups(1e-4)
    assert group["lr"] == pytest.approx(1e-2)
    assert group["weight_decay"] == 1e-4


def test_proxies_start_as_he_et_al_fan_out() -> None:
    proxies = ProxyAnchorLoss(400, 64).proxies
    assert proxies.std().item() == pytest.approx(math.sqrt(2 / 400), rel=0.05)


def test_bad_alpha() -> None:
    with pytest.raises(ValueError, match="alpha"):
        ProxyAnchorLoss(3, 2, alpha=0.0)
