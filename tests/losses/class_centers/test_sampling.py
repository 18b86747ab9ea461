"""Drawn class centers: the plain loss where all are drawn, that of fewer classes where some are,
and the same for any number of processes, which threads stand for here (tests/training has real
ones)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.core.contracts import Output
from unseen.losses.arcface import ArcfaceLoss
from unseen.losses.class_centers import sampling
from unseen.losses.class_centers.base import CenterLoss
from unseen.losses.normalized_softmax import NormalizedSoftmaxLoss
from unseen.losses.proxy_anchor import ProxyAnchorLoss
from unseen.training.distributed import Processes
from unseen.training.objective import MinedObjective

CLASSES, SIZE = 23, 5
MAKE: dict[str, Callable[..., CenterLoss]] = {
    "normalized_softmax": lambda classes=CLASSES, **more: NormalizedSoftmaxLoss(
        classes, SIZE, **more
    ),
    "arcface": lambda classes=CLASSES, **more: ArcfaceLoss(classes, SIZE, scale=8.0, **more),
    "arcface, clamp": lambda classes=CLASSES, **more: ArcfaceLoss(
        classes, SIZE, scale=8.0, clamp=True, **more
    ),
    "proxy_anchor": lambda classes=CLASSES, **more: ProxyAnchorLoss(
        classes, SIZE, alpha=6.0, **more
    ),
}


class Meeting:
    """What threads that stand for processes say to each other."""

    def __init__(self, count: int) -> None:
        self.said: list[Any] = [None] * count
        self.barrier = threading.Barrier(count, timeout=60)

    def together(self, rank: int, values: Tensor, join: Callable[[Tensor], Tensor]) -> Tensor:
        self.said[rank] = values.detach().clone()
        self.barrier.wait()
        joined = join(torch.stack(self.said))
        self.barrier.wait()
        return joined


class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, who: Any) -> Tensor:
        return who.summed(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, who: Any) -> Tensor:
        ctx.who = who
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.who.summed(grad), None


class Thread:
    """Shards, for a thread."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank = meeting, rank

    def fraction(self, total: int) -> slice:
        return Processes(self.rank, len(self.meeting.said)).fraction(total)

    def summed(self, values: Tensor) -> Tensor:
        return self.meeting.together(self.rank, values, lambda every: every.sum(dim=0))

    def largest(self, values: Tensor) -> Tensor:
        return self.meeting.together(self.rank, values, lambda every: every.amax(dim=0))

    def added(self, values: Tensor) -> Tensor:
        return Added.apply(values, self)

    def shared(self, values: Tensor) -> Tensor:
        return Shared.apply(values, self)


def batch(seed: int = 0, number: int = 14) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(number, SIZE, generator=draw, dtype=torch.float64)
    return x, torch.randint(9, (number,), generator=draw)


def weights() -> Tensor:
    draw = torch.Generator().manual_seed(9)
    return torch.randn(CLASSES, SIZE, generator=draw, dtype=torch.float64)


def result(loss: CenterLoss, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient of the embeddings and of the centres."""
    x = x.clone().requires_grad_()
    value = loss(x, y)
    value.backward()
    (centers,) = loss.parameters()
    assert x.grad is not None
    assert centers.grad is not None
    return value.detach(), x.grad, centers.grad.to_dense()


def filled(loss: CenterLoss, rows: Tensor) -> CenterLoss:
    loss = loss.double()
    (centers,) = loss.parameters()
    centers.data.copy_(rows)
    return loss


def in_processes(
    name: str, count: int, rate: float, *given: Tensor, draws: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """What `result` is where so many processes hold the centres; all must agree."""
    meeting = Meeting(count)

    def one(rank: int) -> tuple[Tensor, Tensor, Tensor]:
        who = Thread(meeting, rank)
        loss = filled(MAKE[name](sample_rate=rate, shards=who), weights()[who.fraction(CLASSES)])
        for _ in range(draws):
            loss.zero_grad()
            matches = result(loss, *given)
        return matches

    with ThreadPoolExecutor(count) as pool:
        every = list(pool.map(one, range(count)))
    for other in every[1:]:
        assert torch.equal(other[0], every[0][0])
        assert torch.equal(other[1], every[0][1])
    return *every[0][:2], torch.cat([matches[2] for matches in every])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("name", MAKE)
def test_all_classes_drawn_are_the_plain_loss(name: str, count: int) -> None:
    x, y = batch()
    expected = result(filled(MAKE[name](), weights()), x, y)
    assert all(part.abs().max() > 1e-3 for part in expected)
    for matches, wanted in zip(in_processes(name, count, 1.0, x, y), expected, strict=True):
        torch.testing.assert_close(matches, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MAKE)
def test_some_classes_drawn_are_the_plain_loss_of_so_many(name: str) -> None:
    """The classes with a gradient are all there are; others of the batch are always among them."""
    x, y = batch(1)
    loss = filled(MAKE[name](sample_rate=0.6), weights())
    value, on_x, _ = result(loss, x, y)
    (centers,) = loss.parameters()
    assert centers.grad is not None
    drawn = centers.grad.coalesce().indices()[0]
    assert len(drawn) == 14
    assert set(y.tolist()) <= set(drawn.tolist())
    fewer = filled(MAKE[name](classes=14), weights()[drawn])
    expected = result(fewer, x, torch.tensor([drawn.tolist().index(label) for label in y]))
    torch.testing.assert_close(value, expected[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(on_x, expected[1], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(centers.grad.to_dense()[drawn], expected[2], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.5])
@pytest.mark.parametrize("name", MAKE)
def test_what_is_drawn_does_not_depend_on_the_processes(name: str, rate: float) -> None:
    """Also where some hold none of the classes that were drawn."""
    x, y = batch(2)
    expected = in_processes(name, 1, rate, x, y, draws=3)
    for count in (2, 3, 7):
        for result, wanted in zip(
            in_processes(name, count, rate, x, y, draws=3), expected, strict=True
        ):
            torch.testing.assert_close(result, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MAKE)
def test_gradients_are_those_of_the_value(name: str) -> None:
    x, y = batch(3, 4)
    loss = filled(MAKE[name](sample_rate=0.5), weights())

    def again(x: Tensor) -> Tensor:
        assert loss.sampling is not None
        loss.sampling.draws.fill_(5)
        return loss(x, y)

    assert torch.autograd.gradcheck(again, (x.requires_grad_(),))
    assert torch.autograd.gradgradcheck(again, (x,))
    # second derivatives are of the plain formula, first ones of what is written out
    (written,), (plain,) = (torch.autograd.grad(again(x), x, create_graph=c) for c in (False, True))
    torch.testing.assert_close(plain.detach(), written)


def drawn_by(loss: CenterLoss, y: Tensor) -> list[int]:
    assert loss.sampling is not None
    return loss.sampling._draw(y).tolist()


def test_every_class_is_drawn_alike_and_a_resumed_run_draws_on() -> None:
    y = torch.tensor([3, 3, 17])
    loss = MAKE["arcface"](sample_rate=0.3, seed=4)
    draws = [drawn_by(loss, y) for _ in range(300)]
    assert all(len(draw) == 7 and draw == sorted(set(draw)) for draw in draws)
    times = np.bincount(np.concatenate(draws), minlength=CLASSES)
    assert times[3] == times[17] == 300
    others = np.delete(times, [3, 17])
    assert np.abs(others - 300 * 5 / 21).max() < 40  # 5 deviations
    later = MAKE["arcface"](sample_rate=0.3, seed=4)
    state = MAKE["arcface"](sample_rate=0.3, seed=4)
    for _ in range(10):
        drawn_by(state, y)
    later.load_state_dict(state.state_dict())
    assert drawn_by(later, y) == draws[10]
    assert drawn_by(MAKE["arcface"](sample_rate=0.3, seed=5), y) != draws[0]


def test_a_batch_of_more_classes_than_are_drawn() -> None:
    y = torch.arange(9)
    assert drawn_by(MAKE["arcface"](sample_rate=0.05), y) == y.tolist()


@pytest.mark.parametrize("name", ["normalized_softmax", "proxy_anchor"])
def test_starting_values_do_not_depend_on_the_processes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_BLOCK", 4)

    def start(rank: int, count: int) -> Tensor:
        torch.manual_seed(3)
        loss = MAKE[name](sample_rate=0.5, shards=Processes(rank, count))
        (centers,) = loss.parameters()
        assert loss.describe() == {
            "classes": CLASSES,
            "classes_in_a_step": 12,
            "centers_here": len(centers),
        }
        return centers.detach()

    with torch.random.fork_rng(devices=[]):
        for count in (2, 3, 7):
            parts = torch.cat([start(rank, count) for rank in range(count)])
            assert torch.equal(parts, start(0, 1))


def test_bad_values() -> None:
    for wrong in (0.0, 1.5, -0.1):
        with pytest.raises(ValueError, match=f"sample_rate must be above 0.*{wrong}"):
            MAKE["arcface"](sample_rate=wrong)
    with pytest.raises(ValueError, match="23 classes cannot be divided"):
        MAKE["arcface"](sample_rate=0.5, shards=Processes(23, 24))


def test_nothing_is_divided_without_a_request() -> None:
    assert MAKE["arcface"](shards=Processes(0, 2)).sharded() == {}
    assert MAKE["arcface"](sample_rate=0.1).sharded() == {}
    loss = MAKE["proxy_anchor"](sample_rate=0.1, shards=Processes(1, 2))
    assert loss.sharded() == {"proxies": slice(12, 23)}
    assert MAKE["arcface"]().describe()["classes_in_a_step"] == CLASSES


def test_a_user_gives_a_rate_and_nothing_of_the_processes() -> None:
    assert "shards" not in registry.entry("losses", "arcface").defaults
    with pytest.raises(ValueError, match="unknown parameter of loss arcface 'shards'"):
        registry.check("losses", "arcface", {"shards": 2})


def test_a_step_can_be_repeated_with_the_draw_it_had() -> None:
    x, y = batch(4)
    objective = MinedObjective(filled(MAKE["arcface"](sample_rate=0.5), weights()))
    before = objective.miner_state()
    once, other = (objective.terms(Output(x, x), {}, y)["loss"].item() for _ in range(2))
    assert once != other
    objective.load_miner_state(before)
    assert objective.terms(Output(x, x), {}, y)["loss"].item() == once
