"""The memory holds the last embeddings, prices the batch against them, and survives a stop."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.core.relevance import KINDS, Relevance
from unseen.losses.contrastive import ContrastiveLoss
from unseen.losses.graded_supcon import GradedSupconLoss
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.losses.proxy_anchor import ProxyAnchorLoss
from unseen.losses.triplet import TripletLoss
from unseen.miners.semi_hard import SemiHardMiner
from unseen.training.cross_batch_memory import CrossBatchMemory
from unseen.training.objective import MinedObjective

SIZE, BATCH = 5, 6


def stream(steps: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    return [
        (torch.randn(BATCH, SIZE, generator=generator), torch.arange(BATCH) // 2 + step % 2)
        for step in range(steps)
    ]


def price(objective: MinedObjective, embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return objective(Output(embeddings, embeddings), labels)


def test_the_last_embeddings_are_kept_and_the_oldest_forgotten() -> None:
    memory = CrossBatchMemory(10, SIZE)
    batches = stream(4)
    for embeddings, labels in batches:
        memory.add(embeddings, labels)
    kept, labels = memory.references()
    expected = torch.cat([embeddings for embeddings, _ in batches])[-10:]
    order = [(expected == row).all(dim=1).nonzero().item() for row in kept]
    assert sorted(order) == list(range(10))
    assert torch.equal(labels, torch.cat([labels for _, labels in batches])[-10:][order])


def test_a_batch_larger_than_the_memory_leaves_its_last_items() -> None:
    memory = CrossBatchMemory(4, SIZE)
    embeddings, labels = stream(1)[0]
    memory.add(embeddings, labels)
    assert torch.equal(memory.references()[0], embeddings[-4:])


def test_nothing_is_kept_before_the_start() -> None:
    objective = MinedObjective(ContrastiveLoss(), memory=CrossBatchMemory(20, SIZE, start_step=2))
    sizes, prices = [], []
    for embeddings, labels in stream(4):
        prices.append(price(objective, embeddings, labels)["memory"].item())
        sizes.append(len(objective.memory or ()))
    assert sizes == [0, 0, BATCH, 2 * BATCH]
    assert prices[:3] == [0, 0, 0]
    assert prices[3] > 0


def test_the_total_is_the_batch_and_the_weighted_memory() -> None:
    objective = MinedObjective(TripletLoss(), memory=CrossBatchMemory(20, SIZE, weight=0.3))
    (first, first_labels), (second, labels) = stream(2)
    price(objective, first, first_labels)
    second.requires_grad_()
    terms = price(objective, second, labels)
    alone = TripletLoss()(second, labels)
    against = TripletLoss()(second, labels, None, first, first_labels)
    torch.testing.assert_close(terms["total"], alone + 0.3 * against)
    got = torch.autograd.grad(terms["total"], second)[0]
    torch.testing.assert_close(got, torch.autograd.grad(alone + 0.3 * against, second)[0])


def test_storing_leaves_the_graph_of_the_step_alone() -> None:
    class Products(nn.Module):
        def forward(self, x: Tensor, labels: Tensor, tuples: Any, *references: Tensor) -> Tensor:
            return (x @ references[0].T).sum() if references else x.sum()

    objective = MinedObjective(Products(), memory=CrossBatchMemory(BATCH, SIZE))
    (first, _), (second, labels) = stream(2)
    price(objective, first, labels)
    second.requires_grad_()
    price(objective, second, labels)["memory"].backward()
    torch.testing.assert_close(second.grad, first.sum(dim=0).expand(BATCH, SIZE))


@pytest.mark.parametrize("name", ["contrastive", "multi_similarity", "triplet"])
def test_as_in_pytorch_metric_learning(name: str) -> None:
    """Its memory takes the batch before last up and compares the last one: `enqueue_mask`."""
    from pytorch_metric_learning import losses

    pairs: dict[str, tuple[Any, Any]] = {
        "contrastive": (
            ContrastiveLoss(neg_margin=1.3, reduction="active"),
            losses.ContrastiveLoss(pos_margin=0, neg_margin=1.3),
        ),
        "multi_similarity": (MultiSimilarityLoss(), losses.MultiSimilarityLoss()),
        "triplet": (
            TripletLoss(margin=0.2, distance="euclidean", reduction="active"),
            losses.TripletMarginLoss(margin=0.2),
        ),
    }
    ours, theirs = pairs[name]
    memory = CrossBatchMemory(16, SIZE)
    peer = losses.CrossBatchMemory(theirs, SIZE, memory_size=16)
    batches = stream(6)
    memory.add(*batches[0])
    for (before, labels_before), (embeddings, labels) in pairwise(batches):
        mask = torch.arange(2 * BATCH) < BATCH
        both = torch.cat([before, embeddings])
        expected = peer(both, torch.cat([labels_before, labels]), enqueue_mask=mask)
        got = ours(embeddings, labels, None, *memory.references())
        memory.add(embeddings, labels)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_a_miner_chooses_from_the_memory() -> None:
    objective = MinedObjective(
        TripletLoss(), SemiHardMiner(seed=3), memory=CrossBatchMemory(20, SIZE)
    )
    for embeddings, labels in stream(3):
        terms = price(objective, embeddings, labels)
    assert terms["memory"].isfinite()
    assert terms["memory"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_every_relevance_are_compared_with_those_of_earlier_batches(
    kind: str, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    """The memory knows items by their positions, and what is known of two decides: by a loop."""
    classes = torch.arange(20) % 4
    relevance = kinds(classes)[kind]
    loss: Any = GradedSupconLoss() if kind == "graded" else ContrastiveLoss(reduction="anchors")
    objective = MinedObjective(loss, memory=CrossBatchMemory(20, SIZE), relevance=relevance)
    items = torch.tensor([[0, 4, 5, 9, 12, 17], [8, 1, 19, 5, 16, 2]])
    first, second = (rows for rows, _ in stream(2))
    objective(Output(first, first), classes[items[0]], items[0])
    price = objective(Output(second, second), classes[items[1]], items[1])["memory"]
    references = (first, relevance.of(items[0]))
    torch.testing.assert_close(price, loss(second, relevance.of(items[1]), None, *references))
    if kind != "graded":
        unit = [torch.nn.functional.normalize(rows) for rows in (second, first)]
        expected = 0.0
        for i, one in enumerate(items[1]):
            for j, two in enumerate(items[0]):
                same, different, _ = relevance.relate(one, two)
                distance = float((unit[0][i] - unit[1][j]).norm())
                expected += distance if same else 0
                expected += max(0.0, loss.neg_margin - distance) if different else 0
        assert price.item() == pytest.approx(expected / BATCH, rel=1e-5)


def test_its_state_goes_on_where_it_was() -> None:
    batches = stream(6)
    whole = MinedObjective(ContrastiveLoss(), memory=CrossBatchMemory(8, SIZE, start_step=1))
    expected = [price(whole, *batch)["total"] for batch in batches]
    first = MinedObjective(ContrastiveLoss(), memory=CrossBatchMemory(8, SIZE, start_step=1))
    for batch in batches[:3]:
        price(first, *batch)
    second = MinedObjective(ContrastiveLoss(), memory=CrossBatchMemory(8, SIZE, start_step=1))
    second.load_state_dict(first.state_dict())
    assert [price(second, *batch)["total"] for batch in batches[3:]] == expected[3:]


def test_parts_that_cannot_take_references_are_refused() -> None:
    memory = CrossBatchMemory(8, SIZE)
    with pytest.raises(ValueError, match="ProxyAnchorLoss compares with class parameters"):
        MinedObjective(ProxyAnchorLoss(3, SIZE), memory=memory)
    with pytest.raises(ValueError, match="rho switch"):
        MinedObjective(TripletLoss(), SemiHardMiner(switch=0.1), memory=memory)
    with pytest.raises(ValueError, match="got size=0"):
        CrossBatchMemory(0, SIZE)
