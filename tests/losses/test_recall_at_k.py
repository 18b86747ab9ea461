import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.core.tuples import Pairs
from unseen.losses.recall_at_k import RecallAtKLoss

UNBALANCED = torch.tensor([3, 0, 1, 1, 0, 2, 1, 3, 1, 3, 3, 3])
REF_LABELS = torch.tensor([0, 0, 1, 1, 1, 3, 5])


def sig(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z > -700 else 0.0


def slow(
    x: Tensor, y: Tensor, loss: RecallAtKLoss, refs: Tensor | None = None, ry: Tensor | None = None
) -> float:
    columns, column_labels = (x, y) if refs is None or ry is None else (refs, ry)
    recalls = []
    for i in range(len(x)):
        s = [float(x[i] @ c / (x[i].norm() * c.norm())) for c in columns]
        others = [j for j in range(len(columns)) if refs is not None or j != i]
        positives = [j for j in others if column_labels[j] == y[i]]
        if not positives or len(positives) == len(others):
            continue
        for k in loss.ks:
            result = 0.0
            for p in positives:
                rank = 1.0
                for j in others:
                    rank += sig((s[j] - s[p]) / loss.rank_temperature) if j != p else 0
                result += sig((k - rank) / loss.recall_temperature)
            recalls.append(result / (min(k, len(positives)) if loss.cap else len(positives)))
    return 1 - sum(recalls) / len(recalls)


@pytest.mark.parametrize(
    ("data", "expected"), [("T", 0.303057), ("COL", 0.626932), ("ORT", 0.272122)]
)
def test_published_numbers(spec: SimpleNamespace, data: str, expected: float) -> None:
    loss, x = RecallAtKLoss(ks=(1, 2, 4)), getattr(spec, data)
    assert loss(x, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss(x.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cap", [False, True])
def test_equals_a_slow_loop(seed: int, cap: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    loss = RecallAtKLoss((1, 2, 3, 8), rank_temperature=0.2, recall_temperature=0.7, cap=cap)
    assert loss(x, UNBALANCED).item() == pytest.approx(slow(x, UNBALANCED, loss), rel=1e-9)
    refs = torch.randn(7, 8, generator=generator, dtype=torch.float64)
    got = loss(x, UNBALANCED, None, refs, REF_LABELS).item()
    assert got == pytest.approx(slow(x, UNBALANCED, loss, refs, REF_LABELS), rel=1e-9)


@pytest.mark.parametrize("cap", [False, True])
def test_gradient(cap: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    loss = RecallAtKLoss((1, 2, 4), 0.2, 0.7, cap)
    assert torch.autograd.gradcheck(lambda e: loss(e, UNBALANCED), (x,))


def test_sharp_temperatures_give_the_fraction_of_positives_found() -> None:
    x = torch.randn(12, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = x / x.norm(dim=1, keepdim=True)
    recalls = []
    for i in range(12):
        order = [j for j in (unit @ unit[i]).argsort(descending=True).tolist() if j != i]
        hits = [int(UNBALANCED[j] == UNBALANCED[i]) for j in order]
        if sum(hits):
            recalls.append(sum(hits[:3]) / sum(hits))
    expected = 1 - sum(recalls) / len(recalls)
    # ranks are whole numbers here: the step is put half a rank beyond the third place
    loss = RecallAtKLoss((3,), rank_temperature=1e-7, recall_temperature=1e-4)
    loss.ks = (3.5,)  # type: ignore[assignment]
    assert loss(x, UNBALANCED).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"ks": ()}, {"ks": (0, 1)}, {"rank_temperature": 0.0}, {"recall_temperature": -1.0}]
)
def test_bad_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RecallAtKLoss(**wrong)


def test_an_anchor_without_negatives_does_not_count(spec: SimpleNamespace) -> None:
    first, third = torch.tensor([0]), torch.tensor([2])
    alone = Pairs(first, torch.tensor([1]), first, third)
    beside = Pairs(torch.tensor([0, 2]), torch.tensor([1, 3]), first, third)
    assert (
        RecallAtKLoss()(spec.T, spec.labels, beside)
        == RecallAtKLoss()(spec.T, spec.labels, alone)
        > 0
    )
