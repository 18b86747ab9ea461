import math

import pytest
import torch

from unseen.core.hinges import hinge_sum, hinge_triplets, softplus_triplets

DRAW = torch.Generator().manual_seed(0)
MASK = torch.rand(6, 5, generator=DRAW) > 0.4
MASK[2] = False  # a row without any entry
MASK[:, 3] = False


@pytest.mark.parametrize("below", [False, True])
def test_hinge_sum_equals_a_loop(below: bool) -> None:
    values = torch.randn(6, 5, generator=DRAW, dtype=torch.float64)
    counts = torch.randint(0, 4, (6, 5), generator=DRAW).double()
    for bound in (torch.tensor(0.3).double(), values.mean(dim=1, keepdim=True) + 0.1):
        total, active = 0.0, 0.0
        for i in range(6):
            for j in range(5):
                gap = (values[i, j] - bound.expand(6, 5)[i, j]).item() * (-1 if below else 1)
                total += max(0.0, gap) * counts[i, j].item()
                active += (gap > 0) * counts[i, j].item()
        result = hinge_sum(values, bound, counts, below)
        assert result[0].item() == pytest.approx(total, abs=1e-12)
        assert result[1].item() == active
        given = values.clone().requires_grad_(), bound.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda v, b: hinge_sum(v, b, counts, below)[0], given)


@pytest.mark.parametrize("block", [3, 1 << 16])
def test_sums_over_all_triplets_equal_loops(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("unseen.core.hinges.BLOCK", block)
    dist = torch.rand(5, 6, generator=DRAW, dtype=torch.float64).T  # in whatever order it lies
    pos, neg = MASK, ~MASK
    terms = [
        (dist[a, p] - dist[a, n]).item()
        for a in range(6)
        for p in range(5)
        for n in range(5)
        if pos[a, p] and neg[a, n]
    ]
    total, active = hinge_triplets(dist, pos, neg, 0.2)
    assert total.item() == pytest.approx(sum(max(0.0, t + 0.2) for t in terms), abs=1e-12)
    assert active.item() == sum(t + 0.2 > 0 for t in terms)
    smooth = softplus_triplets(dist, pos, neg)
    assert smooth.item() == pytest.approx(sum(math.log1p(math.exp(t)) for t in terms), abs=1e-9)
    dist.requires_grad_()
    assert torch.autograd.gradcheck(lambda d: hinge_triplets(d, pos, neg, 0.2)[0], (dist,))
    assert torch.autograd.gradcheck(lambda d: softplus_triplets(d, pos, neg), (dist,))
