"""The filter leaves out what a slow loop over the formula leaves out, and survives a stop."""

import math

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Output
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.losses.proxy_anchor import ProxyAnchorLoss
from unseen.training.cross_batch_memory import CrossBatchMemory
from unseen.training.objective import MinedObjective
from unseen.training.prism import Prism

CLASSES, SIZE, BATCH = 5, 4, 10


def stream(steps: int, seed: int = 7) -> list[tuple[Tensor, Tensor]]:
    """Classes around directions of their own; the first batches lack the last class."""
    draw = torch.Generator().manual_seed(seed)
    centers = torch.randn(CLASSES, SIZE, generator=draw, dtype=torch.float64)
    result = []
    for step in range(steps):
        most = CLASSES if step > 2 else CLASSES - 1
        labels = torch.randint(most, (BATCH,), generator=draw)
        noise = torch.randn(BATCH, SIZE, generator=draw, dtype=torch.float64)
        true = torch.where(torch.rand(BATCH, generator=draw) < 0.3, (labels + 1) % most, labels)
        result.append((centers[true] + 0.4 * noise, labels))
    return result


class Slow:
    """The formula as it stands in the docstring, with lists."""

    def __init__(self, fraction: float, window: int, size: int, start_step: int) -> None:
        self.fraction, self.window, self.size, self.start = fraction, window, size, start_step
        self.memory: list[tuple[list[float], int]] = []
        self.thresholds: list[float] = []
        self.steps = 0

    def __call__(self, x: Tensor, y: Tensor) -> list[bool]:
        rows = [[v / math.sqrt(sum(w * w for w in row)) for v in row] for row in x.tolist()]
        labels, stays = y.tolist(), [True] * len(rows)
        if self.steps >= self.start:
            stays = self._chosen(
                [self._probability(r, c) for r, c in zip(rows, labels, strict=True)]
            )
        self.steps += 1
        kept = [(r, c) for r, c, s in zip(rows, labels, stays, strict=True) if s]
        self.memory = (self.memory + kept)[-self.size :]
        return stays

    def _probability(self, row: list[float], own: int) -> float:
        weights = {}
        for c in {c for _, c in self.memory}:
            members = [m for m, label in self.memory if label == c]
            mean = [sum(column) / len(members) for column in zip(*members, strict=True)]
            weights[c] = math.exp(sum(a * b for a, b in zip(row, mean, strict=True)))
        return weights[own] / sum(weights.values()) if own in weights else 1.0

    def _chosen(self, p: list[float]) -> list[bool]:
        number = int(self.fraction * len(p))
        if number == 0:
            return [True] * len(p)
        threshold = sorted(p)[number - 1]
        if threshold < 1:
            self.thresholds = [*self.thresholds, threshold][-self.window :]
        if not self.thresholds:
            return [True] * len(p)
        limit = sum(self.thresholds) / len(self.thresholds)
        stays = [value == 1 or value > limit for value in p]
        if not any(stays):
            self.thresholds = [threshold]
            smallest = sorted(range(len(p)), key=lambda place: p[place])[:number]
            stays = [place not in smallest for place in range(len(p))]
        return stays


@pytest.mark.parametrize("start_step", [0, 3])
@pytest.mark.parametrize(
    ("fraction", "window", "size"), [(0.3, 3, 40), (0.5, 30, 25), (0.05, 2, 9)]
)
def test_equals_a_slow_loop(fraction: float, window: int, size: int, start_step: int) -> None:
    ours = Prism(CLASSES, SIZE, fraction, window, size, start_step).double()
    slow, left_out = Slow(fraction, window, size, start_step), 0
    for x, y in stream(12):
        stays = ours(x, y)
        assert stays.tolist() == slow(x, y)
        left_out += int((~stays).sum())
    assert (left_out > 0) == (fraction > 0.05)


def test_where_none_would_stay_the_window_begins_anew() -> None:
    ours, slow = Prism(2, 2, 0.5, 5, 50).double(), Slow(0.5, 5, 50, 0)
    right = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 2, dtype=torch.float64)
    turned = torch.tensor([[0.1, 1.0], [1.0, 0.2]] * 2, dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1])
    for x in (right, right + 0.1, turned, right):
        assert ours(x, labels).tolist() == slow(x, labels)
    assert int((~ours.thresholds.isnan()).sum()) == len(slow.thresholds) == 2


def test_of_equal_items_some_stay() -> None:
    """A collapsed network gives all items one probability: none lies above it."""
    ours, slow = Prism(2, 2, 0.5, 5, 50).double(), Slow(0.5, 5, 50, 0)
    for labels in (torch.tensor([0, 1] * 3), torch.tensor([0] * 6), torch.tensor([1, 0] * 3)):
        x = torch.ones(6, 2, dtype=torch.float64)
        stays = ours(x, labels)
        assert stays.any()
        assert stays.tolist() == slow(x, labels)


def test_wrong_labels_are_found() -> None:
    """Of a tenth that is wrong, most is left out once the memory is filled; of the rest little."""
    draw = torch.Generator().manual_seed(0)
    centers = torch.randn(8, 16, generator=draw)
    ours, wrong_out, right_out, wrongs = Prism(8, 16, fraction=0.1, window=10, size=400), 0, 0, 0
    for step in range(30):
        labels = torch.arange(40) % 8
        true = labels.clone()
        true[:4] = (labels[:4] + 3) % 8
        stays = ours(centers[true] + 0.5 * torch.randn(40, 16, generator=draw), labels)
        if step > 9:
            wrong_out, wrongs = wrong_out + int((~stays[:4]).sum()), wrongs + 4
            right_out += int((~stays[4:]).sum())
    assert wrong_out > 0.8 * wrongs
    assert right_out < 0.05 * 20 * 36


@pytest.mark.parametrize("loss", [MultiSimilarityLoss(), ProxyAnchorLoss(CLASSES, SIZE)])
def test_the_objective_prices_what_stays(loss: torch.nn.Module) -> None:
    loss = loss.double()
    objective = MinedObjective(loss, label_filter=Prism(CLASSES, SIZE, 0.3).double())
    alone = Prism(CLASSES, SIZE, 0.3).double()
    for x, y in stream(5):
        x.requires_grad_()
        terms, stays = objective(Output(x, x), y), alone(x, y)
        torch.testing.assert_close(terms["total"], loss(x[stays], y[stays]))
        assert terms["left_out"].item() == pytest.approx(1 - stays.double().mean().item())
        (gradient,) = torch.autograd.grad(terms["total"], x)
        assert not gradient[~stays].any()


def test_the_memory_keeps_what_stays() -> None:
    memory = CrossBatchMemory(100, SIZE).double()
    objective = MinedObjective(
        MultiSimilarityLoss(), memory=memory, label_filter=Prism(CLASSES, SIZE, 0.3)
    )
    left_out = sum(
        int(objective(Output(x, x), y)["left_out"].mul(BATCH).round()) for x, y in stream(6)
    )
    assert len(memory) == 6 * BATCH - left_out < 6 * BATCH


def test_its_state_goes_on_where_it_was() -> None:
    batches = stream(10)
    whole, first, second = (Prism(CLASSES, SIZE, 0.3, 4, 30) for _ in range(3))
    expected = [whole(*batch).tolist() for batch in batches]
    for batch in batches[:5]:
        first(*batch)
    second.load_state_dict(first.state_dict())
    assert [second(*batch).tolist() for batch in batches[5:]] == expected[5:]


def test_an_empty_batch_and_bad_values() -> None:
    ours = Prism(CLASSES, SIZE)
    assert ours(torch.zeros(0, SIZE), torch.zeros(0, dtype=torch.long)).tolist() == []
    for wrong in ({"fraction": 0.0}, {"fraction": 1.0}, {"window": 0}, {"start_step": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Prism(CLASSES, SIZE, **wrong)  # type: ignore[arg-type]
