import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.losses import proxy_repulsion
from unseen.losses.proxy_repulsion import ProxyRepulsionLoss


def with_proxies(proxies: Tensor, **values: Any) -> ProxyRepulsionLoss:
    loss = ProxyRepulsionLoss(*proxies.shape, **values).to(proxies.dtype)
    loss.proxies.data.copy_(proxies)
    return loss


def slow(  # one argument per option
    x: Tensor, y: Tensor, proxies: Tensor, variant: int, negatives: str, normalize: bool
) -> float:
    alpha, delta = 3.0, 0.2
    num_classes = len(proxies)

    def cos(a: Tensor, b: Tensor) -> float:
        return float(a @ b / (a.norm() * b.norm()))

    present = {int(label) for label in y}
    pull = 0.0
    for c in present:
        own = [i for i in range(len(x)) if y[i] == c]
        pull += math.log(
            1 + sum(math.exp(-alpha * (cos(x[i], proxies[c]) - delta)) for i in own)
        ) / len(present)

    def gram(c: int, other: int) -> float:
        if variant == 1:
            return cos(proxies[c], proxies[other])
        total = sum(cos(row, proxies[c]) * cos(row, proxies[other]) for row in x)
        return total / len(x) if normalize else total

    # W are all proxies, W- those that push. As printed: classes without an item in the batch.
    every = list(range(num_classes))
    pushing = [c for c in every if c not in present] if negatives == "absent" else every
    pushed = pushing if variant == 1 else every
    push = 0.0
    for c in pushed:
        others = [math.exp(alpha * (gram(c, other) + delta)) for other in pushing if other != c]
        push += math.log(1 + sum(others)) / len(pushed)
    return pull + push


@pytest.mark.parametrize(
    ("variant", "proxies", "alpha", "expected"),
    [
        (1, "PX", 2.0, 1.277319),
        (1, "PX", 32.0, 7.654813),
        (1, "PX4", 2.0, 1.941096),
        (1, "PX4", 32.0, 16.014170),
        (2, "PX", 2.0, 2.404807),
        (2, "PX", 32.0, 32.394838),
        (2, "PX4", 2.0, 3.529128),
        (2, "PX4", 32.0, 48.973775),
    ],
)
def test_published_numbers(
    spec: SimpleNamespace, variant: int, proxies: str, alpha: float, expected: float
) -> None:
    loss = with_proxies(getattr(spec, proxies), variant=variant, alpha=alpha)
    assert loss(spec.T, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss.float()(spec.T.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


def test_items_on_orthonormal_proxies(spec: SimpleNamespace) -> None:
    loss = with_proxies(torch.eye(3, dtype=torch.float64), variant=1)
    expected = math.log(1 + 2 * math.exp(-28.8)) + math.log(1 + 2 * math.exp(3.2))
    assert expected == pytest.approx(3.913323, abs=1e-6)
    assert loss(spec.ORT, spec.labels).item() == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("variant", [1, 2])
@pytest.mark.parametrize("negatives", ["all", "absent"])
@pytest.mark.parametrize("normalize", [False, True])
def test_equals_a_slow_loop(seed: int, variant: int, negatives: str, normalize: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(10, 8, generator=generator, dtype=torch.float64)
    proxies = torch.randn(7, 8, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 3, 3, 2, 2, 2, 0, 3, 5, 3])  # 1, 4 and 6 are absent
    expected = slow(x, y, proxies, variant, negatives, normalize)
    loss = with_proxies(
        proxies, variant=variant, alpha=3.0, delta=0.2, negatives=negatives, normalize=normalize
    )
    assert loss(x, y).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("variant", [1, 2])
@pytest.mark.parametrize("negatives", ["all", "absent"])
def test_blocks_of_rows_change_neither_value_nor_gradient(
    monkeypatch: pytest.MonkeyPatch, variant: int, negatives: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 3, 3, 2, 2, 2, 0, 3, 5, 3])
    loss = ProxyRepulsionLoss(23, 8, variant, alpha=3.0, negatives=negatives).double()
    inputs = (x, loss.proxies)
    value = loss(x, y)
    whole = torch.autograd.grad(value, inputs)
    monkeypatch.setattr(proxy_repulsion, "_ENTRIES", 5 * 23)
    in_blocks = loss(x, y)
    assert in_blocks.item() == pytest.approx(value.item(), rel=1e-12)
    for expected, got in zip(whole, torch.autograd.grad(in_blocks, inputs), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("variant", [1, 2])
def test_a_batch_of_all_classes_leaves_none_absent(spec: SimpleNamespace, variant: int) -> None:
    """Then there is only the pull, that of ProxyAnchor."""
    loss = with_proxies(spec.PX, variant=variant, alpha=2.0, negatives="absent")
    x = spec.T.clone().requires_grad_()
    value = loss(x, spec.labels)
    value.backward()
    pull = 0.0
    for c in range(3):
        own = [float(spec.PX[c] @ spec.T[i]) for i in range(6) if spec.labels[i] == c]
        pull += math.log(1 + sum(math.exp(-2 * (s - 0.1)) for s in own)) / 3
    assert value.item() == pytest.approx(pull)
    assert x.grad.isfinite().all()
    assert loss.proxies.grad.isfinite().all()


@pytest.mark.parametrize("variant", [1, 2])
def test_gradient_of_both_variants(spec: SimpleNamespace, variant: int) -> None:
    loss = with_proxies(spec.PX4, variant=variant, alpha=2.0)
    x = spec.U.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda e, _: loss(e, spec.labels), (x, loss.proxies))


def test_large_sums_do_not_overflow() -> None:
    x = torch.ones(180, 4) + 0.01 * torch.arange(4)
    loss = with_proxies(torch.ones(5, 4))  # exponents of 32 * 180
    value = loss(x, torch.arange(180) % 5)
    assert torch.isfinite(value)
    assert value > 5000


def test_variant_1_does_not_push_embeddings(spec: SimpleNamespace) -> None:
    loss = with_proxies(spec.PX4, variant=1)
    alone, more = spec.T[:2].clone().requires_grad_(), spec.T.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(alone, spec.labels[:2]), alone)
    (second,) = torch.autograd.grad(loss(more, spec.labels), more)
    torch.testing.assert_close(first / 3, second[:2])  # 3 classes share the mean


def test_twice_the_batch_is_twice_the_matrix(spec: SimpleNamespace) -> None:
    loss = with_proxies(spec.PX, variant=2, alpha=2.0)
    half = with_proxies(spec.PX, variant=2, alpha=4.0, delta=0.05)
    sim = spec.PX @ spec.T.T
    twice = loss._repulsion(torch.cat([sim, sim], dim=1))
    assert twice.item() == pytest.approx(half._repulsion(sim).item())


@pytest.mark.parametrize("wrong", [{"variant": 3}, {"negatives": "some"}, {"alpha": -1.0}])
def test_bad_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ProxyRepulsionLoss(3, 2, **wrong)
