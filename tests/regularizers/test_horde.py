"""HORDE: its parts against loops, losses and miners per order, descriptor, what stays behind."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.core.contracts import Output
from unseen.losses.margin import MarginLoss
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.losses.triplet import TripletLoss
from unseen.miners.distance_weighted import DistanceWeightedMiner
from unseen.models.backbone import create_backbone
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork
from unseen.regularizers.horde import HordeRegularizer
from unseen.training.objective import MinedObjective

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def make(
    make_loss: Any = lambda size: MultiSimilarityLoss(), miner: Any = None, **given: Any
) -> HordeRegularizer:
    values = {"num_channels": 4, "embedding_size": 3, "num_orders": 4, "dimension": 8}
    return HordeRegularizer(make_loss, miner, **(values | given)).double()


def output(seed: int = 0, channels: int = 4) -> Output:
    draw = torch.Generator().manual_seed(seed)
    maps = torch.randn(6, channels, 2, 3, generator=draw, dtype=torch.float64).relu()
    return Output(maps.mean(dim=(2, 3))[:, :3], maps.mean(dim=(2, 3)), maps)


def test_price_is_the_sum_of_the_orders_losses() -> None:
    """By loops over images, places and dimensions."""
    horde, out = make(), output()
    assert out.maps is not None
    assert horde.embeddings is not None
    W, E = horde.moments.projectors.detach(), horde.embeddings.detach()
    expected = 0.0
    for order in (2, 3, 4):
        rows = []
        for image in out.maps:
            total = torch.zeros(8, dtype=torch.float64)
            for place in image.flatten(1).T:
                phi = torch.ones(8, dtype=torch.float64)
                for factor in range(order):
                    phi = phi * (place @ W[factor])
                total += phi / 6
            rows.append(F.normalize(total @ E[order - 2], dim=0))
        loss = float(MultiSimilarityLoss()(torch.stack(rows), LABELS))
        expected += loss
        assert float(horde(out, LABELS).detach()) > 0
        assert horde.report()[f"loss_{order}"].item() == pytest.approx(loss)
    assert horde(out, LABELS).item() == pytest.approx(expected)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("cascade", [True, False])
def test_shapes_and_parameters_of_the_four_variants(cascade: bool, trained: bool) -> None:
    horde = make(cascade=cascade, trained=trained)
    assert horde.moments.projectors.shape == (4 if cascade else 2 + 3 + 4, 4, 8)
    orders = horde.order_embeddings(output())
    assert orders.shape == (3, 6, 3 if trained else 8)
    torch.testing.assert_close(orders.norm(dim=2), torch.ones(3, 6, dtype=torch.float64))
    names = {name for name, _ in horde.named_parameters()}
    assert names == ({"moments.projectors", "embeddings"} if trained else set())
    assert "moments.projectors" in horde.state_dict(), "fixed signs are stored too"


def test_signs_are_blind_to_the_scale_of_the_maps() -> None:
    """Norms far beyond what a fourth power leaves in float32."""
    horde, out = make(trained=False, num_orders=5).float(), output()
    assert out.maps is not None
    small = Output(out.embeddings.float(), out.pooled.float(), out.maps.float())
    large = Output(small.embeddings, small.pooled, 1e10 * out.maps.float())
    assert horde(large, LABELS).isfinite()
    torch.testing.assert_close(horde(large, LABELS), horde(small, LABELS), rtol=1e-4, atol=1e-5)


def test_every_order_has_its_own_loss_parameters_and_rate() -> None:
    horde = make(lambda size: MarginLoss(3, lr=5e-4), DistanceWeightedMiner())
    horde(output(), LABELS).backward()
    betas = [loss.beta for loss in horde.losses]
    assert len({id(beta) for beta in betas}) == 3
    own, *others = horde.parameter_groups(1e-5)
    assert own["lr"] == 1e-5
    assert "weight_decay" not in own, "as the network's"
    assert [(g["lr"], g["weight_decay"]) for g in others] == [(5e-4, 0.0)] * 3
    local = {id(parameter) for parameter in horde.local_parameters()}
    assert local == {id(parameter) for parameter in own["params"]}


def test_the_loss_is_made_for_the_size_of_an_order() -> None:
    sizes: list[int] = []

    def make_loss(size: int) -> nn.Module:
        sizes.append(size)
        return MultiSimilarityLoss()

    make(make_loss)
    make(make_loss, trained=False)
    assert sizes == [3, 3, 3, 8, 8, 8]


def test_the_miner_sees_each_orders_embeddings() -> None:
    seen: list[Tensor] = []
    inner = DistanceWeightedMiner()

    def miner(embeddings: Tensor, labels: Tensor) -> Any:
        seen.append(embeddings)
        return inner(embeddings, labels)

    horde = make(lambda size: TripletLoss(), miner)
    horde(output(), LABELS)
    torch.testing.assert_close(torch.stack(seen), horde.order_embeddings(output()))


def test_its_miner_is_its_own_and_its_place_is_kept() -> None:
    """The main miner draws as without HORDE; both miners go on where they stood."""

    def objective(with_horde: bool) -> MinedObjective:
        loss = lambda size: TripletLoss()  # noqa: E731
        parts = [("horde", 0.0, make(loss, DistanceWeightedMiner(seed=1)))] if with_horde else []
        return MinedObjective(TripletLoss(), DistanceWeightedMiner(), parts)

    plain, regularized, resumed = objective(False), objective(True), objective(True)
    for seed in range(3):
        one, two = plain(output(seed), LABELS), regularized(output(seed), LABELS)
        assert torch.equal(one["total"], two["total"])
    resumed.load_state_dict(regularized.state_dict())
    resumed.load_miner_state(regularized.miner_state())
    one, two = regularized(output(5), LABELS), resumed(output(5), LABELS)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_all_orders_as_one_descriptor() -> None:
    horde, out = make(), output()
    joined = horde.concatenated(out)
    assert joined.shape == (6, 3 + 3 * 3)
    torch.testing.assert_close(joined[:, :3], F.normalize(out.embeddings, dim=1))
    torch.testing.assert_close(joined[:, 3:6], horde.order_embeddings(out)[0])


def test_two_processes_make_the_gradient_of_one() -> None:
    """Order embeddings of own images, gathered, then the loss on all: parts add up to the
    whole."""
    whole, parts, out = make(), make(), output()
    whole(out, LABELS).backward()
    assert out.maps is not None
    halves = [
        Output(out.embeddings[s], out.pooled[s], out.maps[s]) for s in (slice(3), slice(3, 6))
    ]
    for rank in range(2):
        orders = [parts.order_embeddings(half) for half in halves]
        gathered = [o if place == rank else o.detach() for place, o in enumerate(orders)]
        parts.on_orders(torch.cat(gathered, dim=1), LABELS).backward()
    for one, two in zip(whole.local_parameters(), parts.local_parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_the_network_alone_serves_for_search() -> None:
    """Trained with HORDE and saved without it, a network embeds as before."""

    def network() -> EmbeddingNetwork:
        return EmbeddingNetwork(create_backbone("small_conv", 32), Head(256, 8))

    trained, images = network(), torch.randn(6, 3, 32, 32)
    horde = make(num_channels=256)
    objective = MinedObjective(MultiSimilarityLoss(), None, [("horde", 1.0, horde)])
    before = {key: value.clone() for key, value in trained.state_dict().items()}
    objective(trained(images), LABELS)["total"].backward()
    torch.optim.SGD([*trained.parameters(), *horde.parameters()], lr=1.0).step()
    kept = trained.state_dict()
    assert any(not torch.equal(kept[key], before[key]) for key in kept)
    loaded = network()
    loaded.load_state_dict(kept)
    assert torch.equal(loaded(images).embeddings, trained(images).embeddings)
    assert not any("horde" in key for key in kept)


def test_an_ensembles_maps_are_reduced_first() -> None:
    horde = make(num_channels=8, reduce=4)
    assert horde.moments.projectors.shape == (4, 4, 8)
    out = output(channels=8)
    assert out.maps is not None
    assert horde.moments.reduction is not None
    reduced = torch.einsum("nchw,cd->ndhw", out.maps, horde.moments.reduction)
    plain = make()
    plain.load_state_dict({k: v for k, v in horde.state_dict().items() if k != "moments.reduction"})
    torch.testing.assert_close(
        plain.order_embeddings(Output(out.embeddings, out.pooled, reduced)),
        horde.order_embeddings(out),
    )


def test_same_seed_same_start_and_no_global_state() -> None:
    before = torch.random.get_rng_state()
    one, two, other = make(seed=3), make(seed=3), make(seed=4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one.moments.projectors, two.moments.projectors)
    assert not torch.equal(one.moments.projectors, other.moments.projectors)


def test_what_is_missing_is_named() -> None:
    out = output()
    with pytest.raises(ValueError, match=r"horde needs the network's last map.*choose another"):
        make()(Output(out.embeddings, out.pooled), LABELS)
    with pytest.raises(ValueError, match="made for maps of 7 channels, got 4"):
        make(num_channels=7)(out, LABELS)
    with pytest.raises(ValueError, match="num_orders counts from 1 and must be at least 2, got 1"):
        make(num_orders=1)
    with pytest.raises(ValueError, match="columns must be a number above 0, got 0"):
        make(columns=0)
