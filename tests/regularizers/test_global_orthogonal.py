"""GOR: loops, the fixed batch, random, equal and orthonormal vectors."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Output
from unseen.regularizers.global_orthogonal import GlobalOrthogonalRegularizer


def price(embeddings: Tensor, labels: Tensor) -> float:
    return float(GlobalOrthogonalRegularizer()(Output(embeddings, embeddings), labels))


def test_on_the_fixed_batch(spec: SimpleNamespace) -> None:
    assert price(spec.T, spec.labels) == pytest.approx(0.129642, abs=1e-6)
    assert price(spec.U, spec.labels) == pytest.approx(0.129642, abs=1e-6), "directions only"


@pytest.mark.parametrize("seed", range(5))
def test_equals_loops(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 3, generator=draw, dtype=torch.float64)
    labels = torch.randint(4, (12,), generator=draw)
    sims = [
        float(F.cosine_similarity(x[i], x[j], dim=0))
        for i in range(12)
        for j in range(12)
        if labels[i] != labels[j]
    ]
    first, second = sum(sims) / len(sims), sum(s * s for s in sims) / len(sims)
    assert price(x, labels) == pytest.approx(first**2 + max(0.0, second - 1 / 3))


def test_random_directions_cost_nothing() -> None:
    """1000 unit vectors in 128 dimensions: mean square 0.0078 = 1/128, loss below 1e-5."""
    x = torch.randn(1000, 128, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    regularizer = GlobalOrthogonalRegularizer()
    value = regularizer(Output(x, x), torch.arange(1000))
    assert value.item() < 1e-5
    assert regularizer.report()["mean_square"].item() == pytest.approx(0.0078, abs=5e-5)


def test_equal_and_orthonormal_vectors() -> None:
    assert price(torch.ones(6, 5).double(), torch.arange(6)) == pytest.approx(2 - 1 / 5)
    assert price(torch.eye(4).double(), torch.arange(4)) == 0.0


def test_one_class_costs_nothing() -> None:
    assert price(torch.ones(6, 5).double(), torch.zeros(6, dtype=torch.long)) == 0.0
