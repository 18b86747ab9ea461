"""Manifold mixup: nothing mixed is the plain step, everything is mixed or nothing, mixing is
linear, draws repeat, hooks leave no trace."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unseen.core.contracts import Batch, Output
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.models.attention_ensemble import AttentionEnsemble
from unseen.models.backbone import create_backbone
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork
from unseen.models.presets import create_preset
from unseen.regularizers.global_orthogonal import GlobalOrthogonalRegularizer
from unseen.training import optimizers
from unseen.training.manifold_mixup import INPUT, ManifoldMixup, mixed_terms
from unseen.training.objective import MinedObjective
from unseen.training.optimizers import ScheduledOptimizer, create_optimizer
from unseen.training.trainer import Trainer

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
PARTNER = torch.tensor([3, 0, 2, 5, 1, 4])


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 5)
        self.relu = nn.ReLU()
        self.stage1 = nn.Linear(5, 6)
        self.stage2 = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.stage2(self.relu(self.stage1(self.relu(self.stem(x)))))
        return y


class Network(nn.Module):
    """Shaped like ours: backbone.body and an Output."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Module()
        self.backbone.body = Body()

    def forward(self, images: Tensor) -> Output:
        pooled = self.backbone.body(images)
        return Output(pooled, pooled)

    def leading_layers(self) -> tuple[nn.Module, str]:
        return self.backbone.body, "forward"


@pytest.fixture
def step() -> SimpleNamespace:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Network().double()
        images = torch.randn(6, 4, dtype=torch.float64)
    objective = MinedObjective(
        MultiSimilarityLoss(), None, [("gor", 0.5, GlobalOrthogonalRegularizer())]
    )
    return SimpleNamespace(network=network, objective=objective, images=images)


LAYERS = [INPUT, "stem", "stage1"]


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_mixed_is_the_plain_step(step: SimpleNamespace, layer: str) -> None:
    plain = step.objective(step.network(step.images), LABELS)
    mixed = mixed_terms(step.network, step.objective, step.images, LABELS, 1.0, PARTNER, layer)
    assert mixed.keys() - plain.keys() == {"mixup"}
    for name in plain:
        torch.testing.assert_close(mixed[name], plain[name])


def test_mixing_at_a_layer_equals_doing_it_by_hand(step: SimpleNamespace) -> None:
    body, fraction = step.network.backbone.body, 0.3
    hidden = body.stem(step.images)
    hidden = fraction * hidden + (1 - fraction) * hidden[PARTNER]
    embeddings = body.stage2(body.stage1(hidden.relu()).relu())
    out = Output(embeddings, embeddings)
    own, other = step.objective(out, LABELS), step.objective(out, LABELS[PARTNER])
    mixed = mixed_terms(
        step.network, step.objective, step.images, LABELS, fraction, PARTNER, "stem"
    )
    for name in own:
        torch.testing.assert_close(mixed[name], fraction * own[name] + (1 - fraction) * other[name])
    assert mixed["mixup"].item() == pytest.approx(fraction)


def test_where_labels_agree_the_weights_add_up_to_one(step: SimpleNamespace) -> None:
    """Partners of the same class: the labels after the permutation are those before it."""
    swap = torch.tensor([1, 0, 3, 2, 5, 4])
    mixed = mixed_terms(step.network, step.objective, step.images, LABELS, 0.4, swap, INPUT)
    images = 0.4 * step.images + 0.6 * step.images[swap]
    plain = step.objective(step.network(images), LABELS)
    torch.testing.assert_close(mixed["total"], plain["total"])


def test_draws_depend_on_seed_and_step_alone(step: SimpleNamespace) -> None:
    mixup = ManifoldMixup(step.network, seed=4)

    def terms(at: int, by: ManifoldMixup = mixup) -> tuple[float, float]:
        result = by(step.objective, step.images, LABELS, at)
        return result["mixup"].item(), result["total"].item()

    first = [terms(at) for at in range(5)]
    assert [terms(at) for at in (3, 1)] == [first[3], first[1]], "any order, as after a resume"
    assert len(set(first)) == 5
    assert terms(0, ManifoldMixup(step.network, seed=5)) != first[0]


@pytest.mark.parametrize("concentration", [2.0, 0.5])
def test_shares_follow_beta(step: SimpleNamespace, concentration: float) -> None:
    mixup = ManifoldMixup(step.network, [INPUT], concentration)
    nothing: Any = lambda output, labels: {}  # noqa: E731
    fractions = [mixup(nothing, step.images, LABELS, at)["mixup"].item() for at in range(400)]
    variance = 1 / (4 * (2 * concentration + 1))
    drawn = torch.tensor(fractions)
    assert float(drawn.mean()) == pytest.approx(0.5, abs=5 * (variance / 400) ** 0.5)
    assert float(drawn.var()) == pytest.approx(variance, rel=0.25)


def test_no_hook_is_left_behind_even_after_an_error(step: SimpleNamespace) -> None:
    layer = "stem"
    with pytest.raises(RuntimeError):
        mixed_terms(step.network, step.objective, step.images[:, :2], LABELS, 0.5, PARTNER, layer)
    mixed_terms(step.network, step.objective, step.images, LABELS, 0.5, PARTNER, layer)
    assert not step.network.backbone.body.stem._forward_hooks


def plain(name: str) -> EmbeddingNetwork:
    backbone = create_backbone(name)
    return EmbeddingNetwork(backbone, Head(backbone.num_features, 8))


def ensemble() -> AttentionEnsemble:
    backbone = create_backbone("small_conv")
    return AttentionEnsemble(backbone, 8, 2, "stage2.reduce", "stage2.reduce_norm")


NETWORKS: dict[str, tuple[Callable[[], Any], int]] = {  # and how many layers are mixed
    "small_conv": (lambda: plain("small_conv"), 4),
    "resnet18": (lambda: plain("timm:test_resnet"), 5),
    "bn_inception": (lambda: plain("bn_inception"), 15),
    "net_a": (lambda: create_preset("net_a", weights=None), 25),
    "ensemble": (ensemble, 4),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_all_that_is_known_of_a_image_is_mixed(name: str) -> None:
    """Wholly replaced by its partner at any of the usual places, an image is its partner."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = NETWORKS[name][0]().eval()
        images = torch.randn(2, 3, 32, 32)
    partner = torch.tensor([1, 0])
    seen: list[Tensor] = []

    def objective(output: Output, labels: Tensor) -> dict[str, Tensor]:
        seen.append(output.embeddings)
        return {}

    places = ManifoldMixup(network).layers
    assert len(places) == 1 + NETWORKS[name][1]
    with torch.no_grad():
        own = network(images).embeddings
        for place in places:
            request: Any = objective
            mixed_terms(network, request, images, LABELS[:2], 0.0, partner, place)
            wrong = (seen[-1] - own[partner]).norm() / (own - own[partner]).norm()
            assert wrong < 1e-3, place


@pytest.mark.parametrize(
    ("name", "layer", "message"),
    [
        ("bn_inception", "inception_3a_1x1", "not only its output is needed after it"),
        ("resnet18", "layer1.0.conv1", "not only its output is needed after it"),
        ("ensemble", "stage2", "runs 0 times in a forward pass"),
        ("ensemble", "stage3", "no layer named 'stage3'"),
        ("small_conv", "stage9", "no layer named 'stage9': did you mean stage"),
    ],
)
def test_a_place_that_does_not_mix_everything_is_refused(
    name: str, layer: str, message: str
) -> None:
    with pytest.raises(ValueError, match=rf"manifold_mixup\.layers: .*{message}"):
        ManifoldMixup(NETWORKS[name][0](), [INPUT, layer])


def test_a_network_without_places_is_refused_unless_its_input_is_named() -> None:
    network = plain("features:4")
    with pytest.raises(ValueError, match="finds no layer that everything passes through"):
        ManifoldMixup(network)
    assert ManifoldMixup(network, [INPUT]).layers == [INPUT]


def test_values_are_checked(step: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="concentration must be above 0, got 0"):
        ManifoldMixup(step.network, concentration=0)
    with pytest.raises(ValueError, match="at least one layer"):
        ManifoldMixup(step.network, [])


def test_memories_receive_the_embeddings_of_unmixed_images() -> None:
    """And batch norms see no image more often than without a memory."""
    message: list[tuple[Tensor, Tensor]] = []

    def trained(listens: bool) -> tuple[nn.Module, Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network, images = Network(), torch.randn(6, 4)
            network.backbone.body.stem = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
        still = create_optimizer("sgd", [{"params": network.parameters(), "lr": 0.0}], 0.0)
        trainer = Trainer(
            network,
            MinedObjective(MultiSimilarityLoss()),
            ScheduledOptimizer(still, optimizers.constant()),
            torch.device("cpu"),
            seed=0,
            mixup=ManifoldMixup(network),
        )
        if listens:
            trainer.embedded.append(lambda indices, rows: message.append((indices, rows)))
        batch = Batch(images, LABELS, torch.arange(10, 16))
        trainer.epoch([batch], torch.arange(3), lambda event: None)
        assert network.training
        return network, images

    alone, images = trained(False)
    watched, _ = trained(True)
    ((indices, rows),) = message
    assert indices.tolist() == list(range(10, 16))
    torch.testing.assert_close(rows, watched.eval()(images).embeddings)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
