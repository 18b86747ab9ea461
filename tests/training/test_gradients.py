"""Chunks give the gradient of the whole batch, for losses whose terms reach across chunks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.core.relevance import GradedPairs, KnownPairs, LabelSets, Levels
from unseen.losses.contrastive import ContrastiveLoss
from unseen.losses.graded_supcon import GradedSupconLoss
from unseen.losses.hierarchical_smooth_ap import HierarchicalSmoothApLoss
from unseen.losses.margin import MarginLoss
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.losses.proxy_anchor import ProxyAnchorLoss
from unseen.losses.triplet import TripletLoss
from unseen.miners.semi_hard import SemiHardMiner
from unseen.regularizers.density import DensityRegularizer
from unseen.regularizers.horde import HordeRegularizer
from unseen.training.cross_batch_memory import CrossBatchMemory
from unseen.training.gradients import WholeBatch, reseed
from unseen.training.nested import Nested
from unseen.training.objective import MinedObjective

SIZE, CLASSES, IMAGES = 8, 6, 18
LABELS = torch.arange(IMAGES) % CLASSES


class TinyNetwork(nn.Module):
    """Maps, a pooled descriptor and an embedding; in float64, so that only formulas can differ."""

    def __init__(self, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Conv2d(3, 10, 3), nn.Tanh(), nn.Dropout(dropout))
        self.norm = nn.BatchNorm2d(10) if norm else nn.Identity()
        self.head = nn.Linear(10, SIZE)
        self.double()

    def forward(self, images: Tensor) -> Output:
        maps = self.norm(self.body(images))
        pooled = maps.mean(dim=(2, 3))
        return Output(self.head(pooled), pooled, maps)


OBJECTIVES = ("pairs", "triplets", "proxies", "horde", "density", "memory", "nested")
RELATED = ("levels", "label sets", "known pairs", "grades")  # where the same is more than a class
OBJECTIVES += RELATED


def related(name: str) -> tuple[Any, ...]:
    """Loss, miner, regularizers, memory and relevance."""
    every = np.array([(i, j) for i in range(IMAGES) for j in range(i) if (i + j) % 4])
    same = every[:, 0] % CLASSES == every[:, 1] % CLASSES
    classes = LABELS.numpy()
    second = np.where(np.arange(IMAGES) % 3, CLASSES + np.arange(IMAGES) % 2, -1)
    memory = CrossBatchMemory(30, SIZE)
    parts: dict[str, tuple[Any, ...]] = {
        "levels": (
            *(
                HierarchicalSmoothApLoss(),
                None,
                [("density", 0.5, DensityRegularizer(CLASSES, d0="batch"))],
            ),
            *(memory, Levels(np.stack([classes // 2, classes], axis=1), 2)),
        ),
        "label sets": (
            *(TripletLoss(), SemiHardMiner(seed=2), (), memory),
            LabelSets(np.stack([classes, second], axis=1)),
        ),
        "known pairs": (ContrastiveLoss(), None, (), memory, KnownPairs(every, same, IMAGES)),
        "grades": (
            *(GradedSupconLoss(), None, (), memory),
            GradedPairs(every, np.where(same, 0.9, 0.1), IMAGES),
        ),
    }
    return parts[name]


def make_objective(name: str) -> MinedObjective:
    def horde() -> HordeRegularizer:
        return HordeRegularizer(
            lambda size: MarginLoss(CLASSES), SemiHardMiner(seed=1), 10, SIZE, 3, 32
        )

    def memory() -> CrossBatchMemory:
        return CrossBatchMemory(30, SIZE)

    parts: dict[str, tuple[Any, ...]] = {
        "pairs": (MultiSimilarityLoss(),),
        "triplets": (TripletLoss(), SemiHardMiner(seed=2)),
        "proxies": (ProxyAnchorLoss(CLASSES, SIZE),),
        "horde": (MarginLoss(CLASSES), None, [("horde", 0.7, horde())]),
        "density": (
            MarginLoss(CLASSES),
            None,
            [("density", 0.5, DensityRegularizer(CLASSES, d0="batch"))],
        ),
        "memory": (TripletLoss(), SemiHardMiner(seed=2), (), memory()),
        "nested": (
            Nested({m: TripletLoss() for m in (3, SIZE)}),
            SemiHardMiner(seed=2),
            (),
            memory(),
        ),
    }
    torch.manual_seed(4)
    return MinedObjective(*(related(name) if name in RELATED else parts[name])).double()


def gradients_of(*modules: nn.Module) -> Tensor:
    return torch.cat(
        [p.grad.flatten() for m in modules for p in m.parameters() if p.grad is not None]
    )


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("micro_batch", [1, 5, 18])
def test_chunks_give_the_gradient_of_the_whole_batch(name: str, micro_batch: int) -> None:
    images = torch.randn(IMAGES, 3, 6, 6, dtype=torch.float64)
    network, objective = TinyNetwork(), make_objective(name)
    output = network(images)
    terms = objective(output, LABELS, torch.arange(IMAGES))
    terms["total"].backward()
    expected = gradients_of(network, objective)
    network, objective = TinyNetwork(), make_objective(name)
    step = WholeBatch(network, objective, micro_batch=micro_batch)
    chunked = step(images, LABELS, torch.arange(IMAGES), seed=5)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(gradients_of(network, objective), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(chunked.embeddings, output.embeddings, rtol=1e-10, atol=1e-12)
    for key in ("total", "loss"):
        torch.testing.assert_close(chunked.terms[key], terms[key], rtol=1e-10, atol=1e-12)


def test_dropout_is_the_same_in_both_passes_of_a_chunk() -> None:
    """The reference keeps the graph of every chunk, drawn from the same seeds."""
    images = torch.randn(IMAGES, 3, 6, 6, dtype=torch.float64)
    network, objective = TinyNetwork(dropout=0.5), make_objective("pairs")
    step = WholeBatch(network, objective, micro_batch=4)
    outcome = step(images, LABELS, torch.arange(IMAGES), seed=5)
    got = gradients_of(network)
    network.zero_grad()
    kept = [step._rows(chunk, 5, number) for number, chunk in enumerate(images.split(4))]
    embeddings = torch.cat([rows["embeddings"] for rows in kept])
    objective(Output(embeddings, embeddings), LABELS)["total"].backward()
    torch.testing.assert_close(outcome.embeddings, embeddings.detach())
    torch.testing.assert_close(got, gradients_of(network), rtol=1e-10, atol=1e-12)


def test_the_same_seed_draws_alike_and_another_does_not() -> None:
    images = torch.randn(IMAGES, 3, 6, 6, dtype=torch.float64)
    step = WholeBatch(TinyNetwork(dropout=0.5), make_objective("pairs"), micro_batch=4)
    seen = [step(images, LABELS, torch.arange(IMAGES), seed=s).embeddings for s in (1, 1, 2)]
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_half_precision_reaches_the_network_but_not_the_rows() -> None:
    images = torch.randn(IMAGES, 3, 6, 6)
    network, objective = TinyNetwork().float(), make_objective("horde").float()

    def autocast() -> torch.autocast:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    step = WholeBatch(network, objective, micro_batch=7, autocast=autocast)
    rows = step._rows(images, 5, 0)
    assert {row.dtype for row in rows.values()} == {torch.float32}
    outcome = step(images, LABELS, torch.arange(IMAGES), seed=5)
    assert outcome.terms["total"].isfinite()


def test_batch_statistics_are_refused() -> None:
    network, objective = TinyNetwork(norm=True), make_objective("pairs")
    WholeBatch(network, objective)
    with pytest.raises(ValueError, match=r"micro_batch=4 batch norm .* frozen_bn"):
        WholeBatch(network, objective, micro_batch=4)
    assert network.training


def test_a_micro_batch_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="micro_batch must be at least 1, got 0"):
        WholeBatch(TinyNetwork(), make_objective("pairs"), micro_batch=0)


def test_the_generator_of_the_gpu_that_computes_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here: a list of what would have been asked of it."""
    request: list[object] = []

    @contextmanager
    def current(device: torch.device) -> Iterator[None]:
        request.append(device)
        yield
        request.append("left")

    monkeypatch.setattr(torch.cuda, "device", current)
    monkeypatch.setattr(torch.cuda, "manual_seed", request.append)
    second = torch.device("cuda", 1)
    reseed(7, second)
    assert request == [second, 7, "left"]
