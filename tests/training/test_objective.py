"""The total is the loss plus weighted regularizers; tuples are counted; parameters are offered."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unseen.config import schema as configs
from unseen.core import registry
from unseen.core.contracts import Output
from unseen.losses.base import LabelLoss, LossSum
from unseen.losses.margin import MarginLoss
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.losses.proxy_anchor import ProxyAnchorLoss
from unseen.losses.triplet import TripletLoss
from unseen.miners.batch_hard import BatchHardMiner
from unseen.miners.distance_weighted import DistanceWeightedMiner
from unseen.miners.multi_similarity import MultiSimilarityMiner
from unseen.training.objective import MinedObjective

LABEL_LOSSES = [
    name
    for name in registry.names("losses")
    if issubclass(registry.find("losses", name), LabelLoss)
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
    terms = MinedObjective(MultiSimilarityLoss())(*batch)
    assert set(terms) == {"total", "loss"}
    assert terms["total"] == MultiSimilarityLoss()(batch[0].embeddings, batch[1])


def test_mined_pairs_are_priced_and_counted(batch: tuple[Output, Tensor]) -> None:
    terms = MinedObjective(MultiSimilarityLoss(), MultiSimilarityMiner())(*batch)
    mined = MultiSimilarityMiner()(batch[0].embeddings, batch[1])
    assert terms["loss"] == MultiSimilarityLoss()(batch[0].embeddings, batch[1], mined)
    assert terms["positive_pairs"] == len(mined[0])


@pytest.mark.parametrize("name", LABEL_LOSSES)
def test_a_miner_before_a_loss_on_labels_is_refused(name: str) -> None:
    loss = registry.create("losses", name, num_classes=4, embedding_size=8)
    with pytest.raises(ValueError, match=r"takes no tuples.*miner=none"):
        MinedObjective(loss, DistanceWeightedMiner())
    for more in ({"miner": "distance_weighted"}, {"miner": {"name": "random", "switch": 0.3}}):
        with pytest.raises(ValueError, match=rf"{name} takes no tuples.*miner=none"):
            configs.make({"loss": name} | more)
    with pytest.raises(ValueError, match=rf"{name} takes no references.*memory=none"):
        configs.make({"loss": name, "memory": {"size": 64}})
    assert configs.make({"loss": name, "miner": None}).miner is None


def test_switched_triplets_are_counted(batch: tuple[Output, Tensor]) -> None:
    terms = MinedObjective(MarginLoss(4), DistanceWeightedMiner(switch=1.0))(*batch)
    assert terms["switched"] == 1.0
    assert terms["triplets"] == 12


def test_regularizers_are_weighed_and_report(batch: tuple[Output, Tensor]) -> None:
    plain = MinedObjective(MultiSimilarityLoss())(*batch)
    terms = MinedObjective(MultiSimilarityLoss(), None, [("length", 0.5, Length())])(*batch)
    assert torch.isclose(terms["total"], plain["loss"] + 0.5 * terms["length"])
    assert terms["length.scale"] == 2.0
    without = MinedObjective(MultiSimilarityLoss(), None, [("length", 0.0, Length())])(*batch)
    assert without["total"] == plain["total"]


def test_own_parameters_have_their_own_rates() -> None:
    objective = MinedObjective(MarginLoss(4, lr=5e-4), None, [("length", 1.0, Length())])
    margin, length = objective.parameter_groups(lr=1e-2)
    assert (margin["lr"], margin["weight_decay"]) == (5e-4, 0.0)
    assert length["lr"] == 1e-2


def variants() -> list[tuple[str, str | None]]:
    """Every loss with its defaults and each source's values that differ in more than rates."""
    result: dict[str, tuple[str, str | None]] = {}
    for name in registry.names("losses"):
        for preset in (None, *registry.entry("losses", name).presets):
            values = registry.preset_values("losses", name, preset)
            message = str({k: v for k, v in values.items() if k != "lr"})
            result.setdefault(f"{name} {message}", (name, preset))
    return list(result.values())


def priced(name: str, preset: str | None) -> tuple[Any, Any]:
    """A loss for learners of size 4, and the miner it usually goes with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = registry.create("losses", name, {}, preset, num_classes=4, embedding_size=4)
    usual = registry.find("losses", name).usual_miner
    return loss.double(), None if usual is None else registry.create("miners", usual, seed=3)


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
    result = [len(miner(head, labels)[3]) for head in output.heads.unbind(1)]
    terms = MinedObjective(MultiSimilarityLoss(), miner)(output, labels)
    assert terms["negative_pairs"] == sum(result)
    switched = MinedObjective(MarginLoss(4), DistanceWeightedMiner(switch=1.0)).double()(
        output, labels
    )
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


def of_length(embeddings: Tensor, labels: Tensor) -> Tensor:
    """A value of each item."""
    return embeddings.square().sum(dim=1)


def test_a_loss_of_each_item_is_averaged() -> None:
    x, labels = torch.randn(6, 3), torch.arange(6) // 2
    result = MinedObjective(of_length)(Output(x, x), labels)["loss"]
    assert result == pytest.approx(of_length(x, labels).mean())


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda x, labels: x.square().mean().detach(), r"without a gradient: leave out detach\(\)"),
        (lambda x, labels: 2.5, r"without a gradient: leave out detach\(\)"),
        (lambda x, labels: x @ x.T, r"one number, or one for each item, got \[6, 6\]"),
        (lambda x, labels: (x.mean(), {}), "one number, or one for each item, got tuple"),
        (lambda x, labels: None, "one number, or one for each item, got NoneType"),
    ],
)
def test_a_loss_that_gives_something_else_is_refused(loss: Any, message: str) -> None:
    x = torch.randn(6, 3, requires_grad=True)
    with pytest.raises(ValueError, match=message):
        MinedObjective(loss)(Output(x, x), torch.arange(6) // 2)


def test_a_loss_that_finds_nothing_may_say_0() -> None:
    x = torch.randn(6, 3, requires_grad=True)
    MinedObjective(lambda x, labels: 0.0)(Output(x, x), torch.arange(6))["total"].backward()
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda x: x.mean(), r"it takes \(x\)"),
        (lambda x, labels, tuples, more: x.mean(), r"it takes \(x, labels, tuples, more\)"),
        (lambda *, x, y: x.mean(), r"it takes \(\*, x, y\)"),
        (nn.TripletMarginLoss(), r"it takes \(anchor: .*, positive: .*, negative: "),
    ],
)
def test_a_loss_that_takes_something_else_is_refused(loss: Any, message: str) -> None:
    x = torch.randn(6, 3, requires_grad=True)
    with pytest.raises(ValueError, match=message):
        MinedObjective(loss)(Output(x, x), torch.arange(6))


def test_a_sum_of_losses() -> None:
    """Tuples go to the losses that take them."""
    torch.manual_seed(0)
    x, labels = torch.randn(12, 4, requires_grad=True), torch.arange(4).repeat(3)
    proxies, triplet, miner = ProxyAnchorLoss(4, 4), TripletLoss(), BatchHardMiner()
    added = LossSum([triplet, proxies, of_length], [1.0, 0.5, 2.0])
    terms = MinedObjective(added, miner)(Output(x, x), labels)
    expected = triplet(x, labels, miner(x, labels)) + 0.5 * proxies(x, labels)
    expected = expected + 2.0 * of_length(x, labels).mean()
    torch.testing.assert_close(terms["loss"], expected)
    assert terms["triplets"] == 12
    assert MinedObjective(added).parameter_groups(0.1) == proxies.parameter_groups(0.1)
    with pytest.raises(ValueError, match="ProxyAnchorLoss compares with class parameters"):
        MinedObjective(LossSum([proxies, proxies]), miner)
    with pytest.raises(ValueError, match="2 losses need as many weights, got 1"):
        LossSum([triplet, proxies], [1.0])
