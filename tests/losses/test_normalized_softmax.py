import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss as PeerLoss
from torch import Tensor

from unseen.losses.normalized_softmax import NormalizedSoftmaxLoss


def with_weight(weight: Tensor, temperature: float = 0.05, **values: bool) -> NormalizedSoftmaxLoss:
    loss = NormalizedSoftmaxLoss(*weight.shape, temperature, **values).to(weight.dtype)
    loss.weight.data.copy_(weight)
    return loss


def slow(x: Tensor, y: Tensor, w: Tensor, temperature: float, layer_norm: bool) -> float:
    total = 0.0
    for i in range(len(x)):
        row = x[i]
        if layer_norm:
            row = (row - row.mean()) / torch.sqrt(((row - row.mean()) ** 2).mean() + 1e-5)
        logits = [float(row @ v / (row.norm() * v.norm())) / temperature for v in w]
        total += math.log(sum(math.exp(z - logits[int(y[i])]) for z in logits))
    return total / len(x)


def test_published_number(spec: SimpleNamespace) -> None:
    loss = with_weight(spec.PX)
    assert loss(spec.T, spec.labels).item() == pytest.approx(0.000857, abs=1e-6)
    assert loss.float()(spec.T.float(), spec.labels).item() == pytest.approx(0.000857, abs=1e-4)


def test_temperature_of_a_sixteenth_is_arcface_without_margin(spec: SimpleNamespace) -> None:
    loss = with_weight(spec.PX, 1 / 16)
    assert loss(spec.T, spec.labels).item() == pytest.approx(0.002462, abs=1e-6)


def test_equal_class_vectors_cost_log_of_their_number(spec: SimpleNamespace) -> None:
    loss = with_weight(spec.COL[:3])
    assert loss(spec.T, spec.labels).item() == pytest.approx(math.log(3))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layer_norm", [False, True])
def test_equals_a_slow_loop(seed: int, layer_norm: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    w = torch.randn(4, 8, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 2, 2, 2, 0, 3, 1, 3, 3, 3])
    loss = with_weight(w, 0.3, layer_norm=layer_norm)
    assert loss(x, y).item() == pytest.approx(slow(x, y, w, 0.3, layer_norm), rel=1e-9)


def test_gradient_with_layer_norm() -> None:
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loss = NormalizedSoftmaxLoss(3, 4, layer_norm=True).double()
    y = torch.arange(6) % 3
    assert torch.autograd.gradcheck(lambda e: loss(e, y), (x.requires_grad_(),))


def test_equals_pytorch_metric_learning() -> None:
    generator = torch.Generator().manual_seed(3)
    x, w = torch.randn(40, 8, generator=generator), torch.randn(6, 8, generator=generator)
    y = torch.randint(6, (40,), generator=generator)
    theirs = PeerLoss(6, 8, temperature=0.05)
    theirs.W.data.copy_(w.T)
    assert with_weight(w)(x, y).item() == pytest.approx(theirs(x, y).item(), rel=1e-5)


def test_bad_temperature() -> None:
    with pytest.raises(ValueError, match="temperature"):
        NormalizedSoftmaxLoss(3, 2, temperature=0.0)
