"""Entropy, both forms: loops, minima, direction of the gradient."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Output
from unseen.regularizers.entropy import EntropyRegularizer


def price(embeddings: Tensor, **given: object) -> float:
    labels = torch.zeros(len(embeddings), dtype=torch.long)
    return float(EntropyRegularizer(**given)(Output(embeddings, embeddings), labels))  # type: ignore[arg-type]


def random(count: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("eta", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_equals_loops(seed: int, eta: float) -> None:
    x = random(9, seed)
    terms = []
    for i in range(9):
        for j in range(i):
            gap = float((F.normalize(x[i], dim=0) - F.normalize(x[j], dim=0)).square().sum())
            p = 1 / (1 + math.exp(gap - eta))
            terms.append(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert price(x, eta=eta) == pytest.approx(sum(terms) / len(terms))


@pytest.mark.parametrize("seed", range(3))
def test_nearest_equals_loops(seed: int) -> None:
    x = F.normalize(random(9, seed), dim=1)
    nearest = [min(float((x[i] - x[j]).norm()) for j in range(9) if j != i) for i in range(9)]
    expected = -sum(math.log(gap) for gap in nearest) / 9
    assert price(x, form="nearest") == pytest.approx(expected)


def test_pairs_is_least_when_every_squared_distance_is_eta() -> None:
    """Three unit vectors at 60 degrees to each other: squared distances 1, price -log 2."""
    gram = torch.full((3, 3), 0.5, dtype=torch.float64).fill_diagonal_(1.0)
    corner = torch.linalg.cholesky(gram)
    assert price(corner) == pytest.approx(-math.log(2))
    assert price(corner, eta=0.5) > -math.log(2)


def test_a_step_spreads_near_pairs_and_gathers_far_ones(spec: SimpleNamespace) -> None:
    for cosine in (0.9, -0.9):
        x = torch.tensor([[1.0, 0.0], [cosine, math.sqrt(1 - cosine**2)]]).double()
        x.requires_grad_()
        EntropyRegularizer()(Output(x, x), torch.tensor([0, 1])).backward()
        assert x.grad is not None
        moved = F.normalize((x - 0.1 * x.grad).detach(), dim=1)
        assert abs(float(moved[0] @ moved[1])) < 0.9


def test_eta_is_learned_on_request_only() -> None:
    assert EntropyRegularizer().parameter_groups(0.1) == []
    learned = EntropyRegularizer(trained=True)
    assert learned.parameter_groups(0.1)[0]["weight_decay"] == 0.0
    x = random(6, 0)
    learned(Output(x, x), torch.zeros(6, dtype=torch.long)).backward()
    assert learned.eta.grad is not None
    assert learned.report()["eta"].item() == 1.0


def test_coincident_items_have_no_gradient_and_no_infinity() -> None:
    x = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    value = EntropyRegularizer("nearest")(Output(x, x), torch.arange(4))
    value.backward()
    assert value.item() == pytest.approx(-math.log(1e-4))
    assert x.grad is not None
    assert not x.grad.any()


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="form must be one of pairs, nearest"):
        EntropyRegularizer("nn")
    with pytest.raises(ValueError, match=r"eta is a squared distance .* got 5"):
        EntropyRegularizer(eta=5)
    with pytest.raises(ValueError, match="only form='pairs' has"):
        EntropyRegularizer("nearest", trained=True)
