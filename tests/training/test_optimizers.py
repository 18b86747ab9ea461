"""Each optimiser does what its formula says; clipping, factors, frozen layers and scaling hold."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unseen.models.backbone import create_backbone
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork
from unseen.training import optimizers
from unseen.training.optimizers import ScheduledOptimizer, create_optimizer, network_groups

LR, DECAY = 0.1, 0.5


def by_hand(name: str, start: float, gradients: list[float]) -> float:
    """One number under a gradient, in plain Python."""
    x, first, second, velocity = start, 0.0, 0.0, 0.0
    for t, slope in enumerate(gradients, start=1):
        gradient = slope if name == "adamw" else slope + DECAY * x
        x -= LR * DECAY * x if name == "adamw" else 0
        if name == "sgd":
            velocity = gradient if t == 1 else 0.9 * velocity + gradient
            x -= LR * velocity
            continue
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        x -= LR * (first / (1 - 0.9**t)) / (math.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return x


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_every_optimizer_equals_its_formula(name: str) -> None:
    x = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    gradients = [1.0, -3.0, 0.5, 2.0]
    optimizer = create_optimizer(name, [{"params": [x], "lr": LR}], DECAY)
    scheduled_optimizer = ScheduledOptimizer(optimizer, optimizers.constant())
    for step, gradient in enumerate(gradients):
        scheduled_optimizer.zero()
        scheduled_optimizer.backward(gradient * x.sum())
        assert scheduled_optimizer.step(step) == pytest.approx(abs(gradient))
    assert x.item() == pytest.approx(by_hand(name, 2.0, gradients), abs=1e-12)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer must be one of adamw, adam, sgd, got 'lion'"):
        create_optimizer("lion", [], 0.0)


def sgd(x: nn.Parameter, clip_norm: float | None = None, **more: str) -> ScheduledOptimizer:
    optimizer = create_optimizer("sgd", [{"params": [x], "lr": 1.0}], 0.0, momentum=0.0)
    return ScheduledOptimizer(optimizer, optimizers.constant(), clip_norm, **more)  # type: ignore[arg-type]


def moved(
    scheduled_optimizer: ScheduledOptimizer, x: nn.Parameter, loss: Callable[[Tensor], Tensor]
) -> Tensor:
    before = x.detach().clone()
    scheduled_optimizer.zero()
    scheduled_optimizer.backward(loss(x))
    scheduled_optimizer.step(0)
    return before - x.detach()


def test_a_long_gradient_is_clipped_and_a_short_one_is_not() -> None:
    x = nn.Parameter(torch.zeros(2))
    way = torch.tensor([3.0, 4.0])
    assert torch.allclose(moved(sgd(x, 1.0), x, lambda x: x @ way), way / 5, atol=1e-5)
    assert torch.equal(moved(sgd(x, 100.0), x, lambda x: x @ way), way)


def test_a_gradient_that_is_not_finite_moves_nothing() -> None:
    x = nn.Parameter(torch.zeros(2))
    scheduled_optimizer = sgd(x, clip_norm=1.0)
    scheduled_optimizer.backward(x @ torch.tensor([math.inf, 1.0]))
    assert scheduled_optimizer.step(0) == math.inf
    assert torch.equal(x, torch.zeros(2))


def test_fp16_scales_the_loss_and_recovers_from_too_high_a_scale() -> None:
    x = nn.Parameter(torch.zeros(2))
    scheduled_optimizer = sgd(x, precision="fp16")
    way = torch.tensor([1e-4, 2e-4])
    assert torch.allclose(moved(scheduled_optimizer, x, lambda x: x @ way), way)
    scale = scheduled_optimizer.scaler.get_scale()
    assert torch.equal(
        moved(scheduled_optimizer, x, lambda x: x @ torch.tensor([math.inf, 0])), torch.zeros(2)
    )
    assert scheduled_optimizer.scaler.get_scale() < scale
    other = sgd(nn.Parameter(torch.zeros(2)), precision="fp16")
    other.load_state_dict(scheduled_optimizer.state_dict())
    assert other.scaler.get_scale() == scheduled_optimizer.scaler.get_scale()


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.half)])
def test_autocast_computes_in_half_precision(precision: str, dtype: torch.dtype) -> None:
    with sgd(nn.Parameter(torch.zeros(2)), precision=precision).autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_the_schedule_sets_the_rate_of_every_group() -> None:
    x, y = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    groups = [{"params": [x], "lr": 1.0}, {"params": [y], "lr": 10.0}]
    scheduled_optimizer = ScheduledOptimizer(
        create_optimizer("sgd", groups, 0.0, 0.0), optimizers.stepwise([1], 0.1)
    )
    for step in range(2):
        scheduled_optimizer.zero()
        scheduled_optimizer.backward(x.sum() + y.sum())
        scheduled_optimizer.step(step)
    assert (x.item(), y.item()) == pytest.approx((-1.1, -11.0))
    assert scheduled_optimizer.lr(1) == pytest.approx(0.1)


def small_network(frozen_bn: str = "off") -> EmbeddingNetwork:
    backbone = create_backbone("timm:test_resnet", 32, frozen_bn=frozen_bn)
    return EmbeddingNetwork(backbone, Head(backbone.num_features, 8))


def test_new_and_pretrained_layers_have_their_own_rates() -> None:
    network = small_network()
    new, old = network_groups(network, 1.0, 0.1)
    assert {id(p) for p in new["params"]} == {id(p) for p in network.head.parameters()}
    assert (new["lr"], old["lr"]) == (1.0, 0.1)
    body = list(network.backbone.body.parameters())
    assert {id(p) for p in old["params"]} == {id(p) for p in body}
    assert len(network_groups(network, 1.0, 1.0)) == 1


@pytest.mark.parametrize("frozen_bn", ["stats", "full"])
def test_frozen_batch_norm_survives_a_warm_up(frozen_bn: str) -> None:
    network = small_network(frozen_bn)
    scheduled_optimizer = ScheduledOptimizer(
        create_optimizer("adamw", network_groups(network, 0.1, 1.0), 0.1), optimizers.constant()
    )
    start = {name: value.clone() for name, value in network.state_dict().items()}

    def changed(*, warm_up: bool) -> set[str]:
        network.warm_up(warm_up)
        network.train()
        scheduled_optimizer.zero()
        scheduled_optimizer.backward(network(torch.randn(4, 3, 32, 32)).embeddings.square().sum())
        scheduled_optimizer.step(0)
        state = network.state_dict()
        return {name for name, value in state.items() if not torch.equal(value, start[name])}

    assert changed(warm_up=True) == {"head.fc1.weight", "head.fc1.bias"}
    after = changed(warm_up=False)
    assert "backbone.body.conv1.0.weight" in after
    assert not {name for name in after if "running" in name or "num_batches" in name}
    assert ("backbone.body.bn1.weight" in after) == (frozen_bn == "stats")


def test_layers_nearer_to_the_images_have_lower_rates() -> None:
    """By the blocks of a transformer; each layer's rate over the next one's is layer_decay."""
    backbone = create_backbone("timm:test_vit", 32)
    network = EmbeddingNetwork(backbone, Head(backbone.num_features, 8))
    groups = network_groups(network, 1.0, 0.5, layer_decay=0.5)
    rate = {id(p): group["lr"] for group in groups for p in group["params"]}
    body: Any = backbone.body
    assert rate[id(network.head.fc1.weight)] == 1.0
    last = rate[id(body.norm.weight)]
    assert last == 0.5
    blocks = [rate[id(block.attn.qkv.weight)] for block in body.blocks]
    assert blocks == pytest.approx(
        [last * 0.5 ** (len(blocks) - 1 - n) for n in range(len(blocks))]
    )
    assert rate[id(body.patch_embed.proj.weight)] == pytest.approx(blocks[0] / 2)
    assert len(rate) == len(list(network.parameters()))


def test_a_network_that_does_not_say_its_layers_has_no_layer_decay() -> None:
    backbone = create_backbone("small_conv")
    network = EmbeddingNetwork(backbone, Head(backbone.num_features, 8))
    with pytest.raises(ValueError, match="layer_decay needs a network of timm"):
        network_groups(network, 1.0, 1.0, layer_decay=0.5)


def test_constant() -> None:
    assert {optimizers.constant()(step) for step in range(100)} == {1.0}


def test_cosine_rises_shortly_and_ends_at_zero() -> None:
    factor = optimizers.cosine(1000)
    assert factor(0) == 1 / 20
    assert factor(19) == factor(20) == 1
    assert factor(510) == pytest.approx(0.5)
    assert factor(1000) == pytest.approx(0)
    falling = [factor(step) for step in range(20, 1001)]
    assert falling == sorted(falling, reverse=True)


def test_stepwise_falls_at_each_milestone() -> None:
    factor = optimizers.stepwise([10, 30], 0.1)
    assert [factor(step) for step in (0, 9, 10, 29)] == pytest.approx([1, 1, 0.1, 0.1])
    assert factor(30) == pytest.approx(0.01)
