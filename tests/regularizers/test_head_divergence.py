"""Divergence of an ensemble's heads: loops, the fixed batch of two learners, the plain cases."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Output
from unseen.losses.contrastive import ContrastiveLoss
from unseen.regularizers.head_divergence import HeadDivergenceRegularizer
from unseen.training.objective import MinedObjective


def price(heads: Tensor, **given: object) -> float:
    flat = heads.flatten(1)
    labels = torch.zeros(len(heads), dtype=torch.long)
    return float(HeadDivergenceRegularizer(**given)(Output(flat, flat, None, heads), labels))  # type: ignore[arg-type]


def two_learners(spec: SimpleNamespace) -> Tensor:  # [6, 2, 2]
    angle = torch.tensor([8, 21, 72, 131, 212, 243], dtype=torch.float64) * math.pi / 180
    return torch.stack([spec.T, torch.stack([angle.cos(), angle.sin()], dim=1)], dim=1)


def test_on_the_fixed_batch_of_two_learners(spec: SimpleNamespace) -> None:
    """Weight 0.5: same images alone 0.2419, the whole ensemble loss over all images
    0.336078."""
    heads = two_learners(spec)
    assert 0.5 * price(heads) == pytest.approx(0.2419, abs=5e-5)
    loss = ContrastiveLoss(**ContrastiveLoss.PRESETS["horde"])
    objective = MinedObjective(
        loss, None, [("divergence", 0.5, HeadDivergenceRegularizer(scope="all"))]
    )
    terms = objective(Output(heads.flatten(1), heads.flatten(1), None, heads), spec.labels)
    assert float(terms["total"]) == pytest.approx(0.336078, abs=1e-6)


@pytest.mark.parametrize("scope", ["same", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_equals_loops(scope: str, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    heads = torch.randn(5, 3, 4, generator=draw, dtype=torch.float64)
    unit = F.normalize(heads, dim=2)
    terms = [
        max(0.0, float(unit[i, m] @ unit[j, n]) - 0.2)
        for i in range(5)
        for j in range(5)
        for m in range(3)
        for n in range(3)
        if m != n and (scope == "all" or i == j)
    ]
    expected = sum(terms) / max(1, sum(term > 0 for term in terms))
    assert price(heads, margin=0.2, scope=scope) == pytest.approx(expected)


def test_equal_heads_cost_a_half_orthogonal_ones_nothing() -> None:
    draw = torch.Generator().manual_seed(0)
    one = torch.randn(5, 1, 8, generator=draw, dtype=torch.float64)
    assert price(one.expand(5, 8, 8)) == pytest.approx(0.5)
    assert price(torch.eye(8).double().expand(5, 8, 8)) == 0.0
    assert price(one) == 0.0, "a single head has none to differ from"


def test_report_says_how_alike_the_heads_are(spec: SimpleNamespace) -> None:
    heads = two_learners(spec)
    regularizer = HeadDivergenceRegularizer()
    regularizer(Output(spec.T, spec.T, None, heads), spec.labels)
    sims = [float(heads[i, 0] @ heads[i, 1]) for i in range(6)]
    assert regularizer.report()["mean_similarity"].item() == pytest.approx(sum(sims) / 6)
    assert regularizer.report()["active_fraction"].item() == 1.0


def test_bad_values_are_named(spec: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="margin is a cosine similarity"):
        HeadDivergenceRegularizer(margin=1.0)
    with pytest.raises(ValueError, match="scope must be one of same, all"):
        HeadDivergenceRegularizer(scope="cross")
    with pytest.raises(ValueError, match="needs a network with heads"):
        HeadDivergenceRegularizer()(Output(spec.T, spec.T), spec.labels)
