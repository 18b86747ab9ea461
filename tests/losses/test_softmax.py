import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from unseen.losses.softmax import SoftmaxLoss


def with_weight(weight: Tensor, **values: bool) -> SoftmaxLoss:
    loss = SoftmaxLoss(*weight.shape, **values).to(weight.dtype)
    loss.weight.data.copy_(weight)
    return loss


@pytest.mark.parametrize(("length", "expected"), [(1, 0.485208), (2, 0.226014)])
def test_published_numbers(spec: SimpleNamespace, length: int, expected: float) -> None:
    loss = with_weight(spec.PX)
    assert loss(length * spec.T, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    single = loss.float()(length * spec.T.float(), spec.labels).item()
    assert single == pytest.approx(expected, abs=1e-4)


def test_unit_embeddings_on_request(spec: SimpleNamespace) -> None:
    loss = with_weight(spec.PX, normalize_input=True)
    assert loss(spec.U, spec.labels).item() == pytest.approx(0.485208, abs=1e-6)


def test_zero_weight_costs_log_of_the_number_of_classes(spec: SimpleNamespace) -> None:
    loss = with_weight(torch.zeros(3, 2, dtype=torch.float64))
    assert loss(spec.U, spec.labels).item() == pytest.approx(math.log(3))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("normalize", [False, True])
def test_equals_a_slow_loop_with_bias(seed: int, normalize: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 2, 2, 2, 0, 3, 1, 3, 3, 3])
    loss = SoftmaxLoss(4, 8, bias=True, normalize_input=normalize).double()
    assert loss.bias is not None
    weight, bias = loss.weight.detach(), loss.bias.detach()
    total = 0.0
    for i in range(12):
        row = x[i] / x[i].norm() if normalize else x[i]
        logits = [float(row @ weight[c] + bias[c]) for c in range(4)]
        total += math.log(sum(math.exp(z - logits[int(y[i])]) for z in logits)) / 12
    assert loss(x, y).item() == pytest.approx(total, rel=1e-9)


def test_bias_learns_and_weights_decay_as_the_network() -> None:
    loss = SoftmaxLoss(3, 2, bias=True)
    network = torch.nn.Linear(2, 2)
    groups = [{"params": list(network.parameters())}, *loss.parameter_groups(0.1)]
    optimizer = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.3)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.3]
    loss(torch.randn(6, 2), torch.arange(6) % 3).backward()
    assert loss.bias is not None
    assert loss.bias.grad is not None
    assert loss.bias.grad.abs().min() > 0
