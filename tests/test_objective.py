"""The total is the loss plus weighted regularizers; tuples are counted; parameters are offered."""

import pytest
import torch
from torch import Tensor, nn

from unseen.contracts import Output
from unseen.losses.margin import Margin
from unseen.losses.multi_similarity import MultiSimilarity
from unseen.losses.normalized_softmax import NormalizedSoftmax
from unseen.miners.distance_weighted import DistanceWeighted
from unseen.miners.multi_similarity import MultiSimilarity as MultiSimilarityMiner
from unseen.objective import MinedObjective


class Length(nn.Module):
    """A regularizer with a parameter and a report."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, output: Output, labels: Tensor) -> Tensor:
        return self.scale * output.embeddings.square().mean()

    def report(self) -> dict[str, Tensor]:
        return {"scale": self.scale.detach()}


@pytest.fixture
def batch() -> tuple[Output, Tensor]:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(12, 8, generator=generator, requires_grad=True)
    return Output(embeddings, embeddings), torch.arange(12) % 4


def test_without_miner_and_regularizers_the_total_is_the_loss(batch: tuple[Output, Tensor]) -> None:
    terms = MinedObjective(MultiSimilarity())(*batch)
    assert set(terms) == {"total", "loss"}
    assert terms["total"] == MultiSimilarity()(batch[0].embeddings, batch[1])


def test_mined_pairs_are_priced_and_counted(batch: tuple[Output, Tensor]) -> None:
    terms = MinedObjective(MultiSimilarity(), MultiSimilarityMiner())(*batch)
    mined = MultiSimilarityMiner()(batch[0].embeddings, batch[1])
    assert terms["loss"] == MultiSimilarity()(batch[0].embeddings, batch[1], mined)
    assert terms["positive_pairs"] == len(mined[0])


def test_switched_triplets_are_counted(batch: tuple[Output, Tensor]) -> None:
    terms = MinedObjective(Margin(4), DistanceWeighted(switch=1.0))(*batch)
    assert terms["switched"] == 1.0
    assert terms["triplets"] == 12


def test_regularizers_are_weighed_and_report(batch: tuple[Output, Tensor]) -> None:
    plain = MinedObjective(MultiSimilarity())(*batch)
    terms = MinedObjective(MultiSimilarity(), None, [("length", 0.5, Length())])(*batch)
    assert torch.isclose(terms["total"], plain["loss"] + 0.5 * terms["length"])
    assert terms["length.scale"] == 2.0
    without = MinedObjective(MultiSimilarity(), None, [("length", 0.0, Length())])(*batch)
    assert without["total"] == plain["total"]


def test_own_parameters_have_their_own_rates() -> None:
    objective = MinedObjective(Margin(4, lr=5e-4), None, [("length", 1.0, Length())])
    margin, length = objective.parameter_groups(lr=1e-2)
    assert (margin["lr"], margin["weight_decay"]) == (5e-4, 0.0)
    assert length["lr"] == 1e-2


@pytest.fixture
def ensemble() -> tuple[Output, Tensor]:
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(12, 3, 4, generator=generator)
    return Output(heads.flatten(1), heads.flatten(1), heads=heads), torch.arange(12) % 4


def test_learners_are_compared_with_themselves_only(ensemble: tuple[Output, Tensor]) -> None:
    output, labels = ensemble
    assert output.heads is not None
    one_by_one = [MultiSimilarity()(head, labels) for head in output.heads.unbind(1)]
    terms = MinedObjective(MultiSimilarity())(output, labels)
    torch.testing.assert_close(terms["loss"], torch.stack(one_by_one).mean())


def test_learners_are_mined_one_by_one(ensemble: tuple[Output, Tensor]) -> None:
    output, labels = ensemble
    assert output.heads is not None
    miner = MultiSimilarityMiner()
    mined = [miner(head, labels) for head in output.heads.unbind(1)]
    terms = MinedObjective(MultiSimilarity(), miner)(output, labels)
    assert terms["negative_pairs"] == sum(len(pairs[3]) for pairs in mined)
    prices = [
        MultiSimilarity()(head, labels, pairs)
        for head, pairs in zip(output.heads.unbind(1), mined, strict=True)
    ]
    torch.testing.assert_close(terms["loss"], torch.stack(prices).mean())


def test_class_parameters_see_every_learner(ensemble: tuple[Output, Tensor]) -> None:
    output, labels = ensemble
    assert output.heads is not None
    loss = NormalizedSoftmax(num_classes=4, embedding_size=4)
    one_by_one = [loss(head, labels) for head in output.heads.unbind(1)]
    terms = MinedObjective(loss)(output, labels)
    torch.testing.assert_close(terms["loss"], torch.stack(one_by_one).mean())
