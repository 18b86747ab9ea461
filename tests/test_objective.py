"""The total is the loss plus weighted regularizers; tuples are counted; parameters are offered."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unseen import catalogue
from unseen import config as configs
from unseen.contracts import Output
from unseen.losses.base import LabelLoss
from unseen.losses.margin import Margin
from unseen.losses.multi_similarity import MultiSimilarity
from unseen.miners.distance_weighted import DistanceWeighted
from unseen.miners.multi_similarity import MultiSimilarity as MultiSimilarityMiner
from unseen.objective import MinedObjective

LABEL_LOSSES = [
    name
    for name in catalogue.names("losses")
    if issubclass(catalogue.find("losses", name), LabelLoss)
]


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


@pytest.mark.parametrize("name", LABEL_LOSSES)
def test_a_miner_before_a_loss_on_labels_is_refused(name: str) -> None:
    loss = catalogue.create("losses", name, num_classes=4, embedding_size=8)
    with pytest.raises(ValueError, match=r"takes no tuples.*miner=none"):
        MinedObjective(loss, DistanceWeighted())
    for more in ({"miner": "distance_weighted"}, {"miner": {"name": "random", "switch": 0.3}}):
        with pytest.raises(ValueError, match=rf"{name} takes no tuples.*miner=none"):
            configs.make({"loss": name} | more)
    with pytest.raises(ValueError, match=rf"{name} takes no references.*memory=none"):
        configs.make({"loss": name, "memory": {"size": 64}})
    assert configs.make({"loss": name, "miner": None}).miner is None


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


def variants() -> list[tuple[str, str | None]]:
    """Every loss with its defaults and each source's values that differ in more than rates."""
    found: dict[str, tuple[str, str | None]] = {}
    for name in catalogue.names("losses"):
        for preset in (None, *catalogue.entry("losses", name).presets):
            values = catalogue.preset_values("losses", name, preset)
            told = str({k: v for k, v in values.items() if k != "lr"})
            found.setdefault(f"{name} {told}", (name, preset))
    return list(found.values())


def priced(name: str, preset: str | None) -> tuple[Any, Any]:
    """A loss for learners of size 4, and the miner it usually goes with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = catalogue.create("losses", name, {}, preset, num_classes=4, embedding_size=4)
    usual = catalogue.find("losses", name).usual_miner
    return loss.double(), None if usual is None else catalogue.create("miners", usual, seed=3)


def learners(scale: float = 1.0) -> tuple[Output, Tensor]:
    """Three learners of twelve items; the last two are longer by `scale` and turned."""
    draw = torch.Generator().manual_seed(0)
    heads = torch.randn(12, 3, 4, generator=draw, dtype=torch.float64)
    heads[:, 1:] = scale * (heads[:, 1:] if scale == 1 else heads[:, 1:].flip(0))
    heads = heads.requires_grad_()
    return Output(heads.flatten(1), heads.flatten(1), heads=heads), torch.arange(12) % 4


@pytest.mark.parametrize("mined", [True, False])
@pytest.mark.parametrize(("name", "preset"), variants())
def test_the_price_of_learners_is_the_mean_of_their_own(
    name: str, preset: str | None, mined: bool
) -> None:
    """The slow twin: every learner's batch by itself, with a miner that stands where it stood."""
    loss, miner = priced(name, preset)
    _, again = priced(name, preset)
    miner, again = (miner, again) if mined else (None, None)
    output, labels = learners()
    assert output.heads is not None
    prices = []
    for place in range(3):
        own = output.heads.detach()[:, place].clone()
        tuples = None if again is None else again(own, labels)
        prices.append(loss(own, labels, tuples).item())
    terms = MinedObjective(loss, miner)(output, labels)
    assert terms["loss"].item() == pytest.approx(sum(prices) / 3, rel=1e-10)


@pytest.mark.parametrize(("name", "preset"), variants())
def test_no_learner_changes_the_gradient_of_another(name: str, preset: str | None) -> None:
    gradients = []
    for scale in (1.0, 1.5):
        loss, miner = priced(name, preset)
        output, labels = learners(scale)
        assert output.heads is not None
        total = MinedObjective(loss, miner)(output, labels)["total"]
        (gradient,) = torch.autograd.grad(total, output.heads)
        gradients.append(gradient[:, 0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)


def test_tuples_of_all_learners_are_counted() -> None:
    output, labels = learners()
    assert output.heads is not None
    miner = MultiSimilarityMiner()
    found = [len(miner(head, labels)[3]) for head in output.heads.unbind(1)]
    terms = MinedObjective(MultiSimilarity(), miner)(output, labels)
    assert terms["negative_pairs"] == sum(found)
    switched = MinedObjective(Margin(4), DistanceWeighted(switch=1.0)).double()(output, labels)
    assert (switched["triplets"], switched["switched"]) == (36, 1)


def test_a_function_of_two_tensors_is_a_loss() -> None:
    def spread(embeddings: Tensor, labels: Tensor) -> Tensor:
        return embeddings.square().mean()

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
            return self.scale * embeddings.square().mean()

    x, labels = torch.ones(4, 3), torch.tensor([0, 0, 1, 1])
    assert MinedObjective(spread)(Output(x, x), labels)["total"] == 1.0
    own = MinedObjective(
        Scaled(), None, [("spread", 0.5, lambda output, labels: output.pooled.sum())]
    )
    assert own(Output(x, x), labels)["total"] == 2.0 + 0.5 * 12
    assert len(own.parameter_groups(0.1)) == 1
    for loss in (spread, Scaled()):
        with pytest.raises(ValueError, match="leave the miner out"):
            MinedObjective(loss, lambda embeddings, labels: None)
