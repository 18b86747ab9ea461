"""The total is the loss plus weighted regularizers; tuples are counted; parameters are offered."""

import pytest
import torch
from torch import Tensor, nn

from unseen.contracts import Output
from unseen.losses.margin import Margin
from unseen.losses.multi_similarity import MultiSimilarity
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
