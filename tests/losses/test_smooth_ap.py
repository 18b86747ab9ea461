import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from unseen.core.tuples import Pairs
from unseen.losses import smooth_ap
from unseen.losses.smooth_ap import SmoothApLoss

UNBALANCED = torch.tensor([3, 0, 1, 1, 0, 2, 1, 3, 1, 3, 3, 3])
REF_LABELS = torch.tensor([0, 0, 1, 1, 1, 3, 5])


def slow(
    x: Tensor, y: Tensor, temperature: float, refs: Tensor | None = None, ry: Tensor | None = None
) -> float:
    columns, column_labels = (x, y) if refs is None or ry is None else (refs, ry)

    def sig(z: float) -> float:
        return 1 / (1 + math.exp(-z / temperature)) if z > -700 * temperature else 0.0

    precisions = []
    for i in range(len(x)):
        s = [float(x[i] @ c / (x[i].norm() * c.norm())) for c in columns]
        others = [j for j in range(len(columns)) if refs is not None or j != i]
        positives = [j for j in others if column_labels[j] == y[i]]
        if not positives or len(positives) == len(others):
            continue
        total = 0.0
        for p in positives:
            above = 1 + sum(sig(s[q] - s[p]) for q in positives if q != p)
            rank = 1 + sum(sig(s[j] - s[p]) for j in others if j != p)
            total += above / rank
        precisions.append(total / len(positives))
    return 1 - sum(precisions) / len(precisions)


@pytest.mark.parametrize(
    ("data", "temperature", "expected"),
    [("T", 0.01, 0.085031), ("T", 0.1, 0.176452), ("COL", 0.01, 2 / 3), ("ORT", 0.01, 0.0)],
)
def test_published_numbers(
    spec: SimpleNamespace, data: str, temperature: float, expected: float
) -> None:
    loss, x = SmoothApLoss(temperature), getattr(spec, data)
    assert loss(x, spec.labels).item() == pytest.approx(expected, abs=1e-6)
    assert loss(x.float(), spec.labels).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [1, 40, 1 << 18])
def test_equals_a_slow_loop(seed: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smooth_ap, "_ENTRIES", block)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 8, generator=generator, dtype=torch.float64)
    loss = SmoothApLoss(0.2)
    assert loss(x, UNBALANCED).item() == pytest.approx(slow(x, UNBALANCED, 0.2), rel=1e-9)
    refs = torch.randn(7, 8, generator=generator, dtype=torch.float64)
    got = loss(x, UNBALANCED, None, refs, REF_LABELS).item()
    assert got == pytest.approx(slow(x, UNBALANCED, 0.2, refs, REF_LABELS), rel=1e-9)


@pytest.mark.parametrize(("classes", "size"), [(8, 4), (16, 2), (32, 4), (3, 7)])
def test_perfect_embeddings_cost_nothing_in_any_shape_and_order(classes: int, size: int) -> None:
    y = torch.arange(classes).repeat_interleave(size)
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    x = torch.eye(classes)[y]
    assert SmoothApLoss()(x, y).item() == pytest.approx(0.0, abs=1e-5)


def test_hard_ranks_give_the_average_precision() -> None:
    x = torch.randn(12, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = x / x.norm(dim=1, keepdim=True)
    precisions = []
    for i in range(12):
        order = [j for j in (unit @ unit[i]).argsort(descending=True).tolist() if j != i]
        hits = [int(UNBALANCED[j] == UNBALANCED[i]) for j in order]
        if sum(hits):
            result = [sum(hits[: r + 1]) / (r + 1) for r in range(11) if hits[r]]
            precisions.append(sum(result) / len(result))
    expected = 1 - sum(precisions) / len(precisions)
    assert SmoothApLoss(1e-6)(x, UNBALANCED).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("block", [40, 1 << 18])
def test_gradient(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smooth_ap, "_ENTRIES", block)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    refs = torch.randn(7, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    loss = SmoothApLoss(0.2)
    assert torch.autograd.gradcheck(lambda e: loss(e, UNBALANCED), (x,))
    assert torch.autograd.gradcheck(
        lambda e, r: loss(e, UNBALANCED, None, r, REF_LABELS), (x, refs)
    )


def test_memory_does_not_grow_with_pairs_times_references() -> None:
    """What autograd keeps for the backward pass has at most the size of the similarity matrix."""
    largest = 0

    def note(tensor: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    x = torch.randn(64, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        SmoothApLoss()(x, torch.arange(64) % 4)  # 960 positive pairs
    assert 0 < largest <= 64 * 64


def test_bad_temperature() -> None:
    with pytest.raises(ValueError, match="temperature"):
        SmoothApLoss(0.0)


def test_an_anchor_without_negatives_does_not_count(spec: SimpleNamespace) -> None:
    first, third = torch.tensor([0]), torch.tensor([2])
    alone = Pairs(first, torch.tensor([1]), first, third)
    beside = Pairs(torch.tensor([0, 2]), torch.tensor([1, 3]), first, third)
    assert (
        SmoothApLoss(0.2)(spec.T, spec.labels, beside)
        == SmoothApLoss(0.2)(spec.T, spec.labels, alone)
        > 0
    )
