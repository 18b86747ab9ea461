"""Manifold mixup: nothing mixed is the plain step, mixing is linear, draws repeat, hooks leave no
trace."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from unseen.contracts import Output
from unseen.losses.multi_similarity import MultiSimilarity
from unseen.objective import MinedObjective
from unseen.regularizers.global_orthogonal import GlobalOrthogonal
from unseen.training.manifold_mixup import INPUT, ManifoldMixup, early_layers, mixed_terms

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


@pytest.fixture
def step() -> SimpleNamespace:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Network().double()
        images = torch.randn(6, 4, dtype=torch.float64)
    objective = MinedObjective(MultiSimilarity(), None, [("gor", 0.5, GlobalOrthogonal())])
    return SimpleNamespace(network=network, objective=objective, images=images)


LAYERS = [INPUT, "backbone.body.stem", "backbone.body.stage1"]


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_mixed_is_the_plain_step(step: SimpleNamespace, layer: str) -> None:
    plain = step.objective(step.network(step.images), LABELS)
    mixed = mixed_terms(step.network, step.objective, step.images, LABELS, 1.0, PARTNER, layer)
    assert mixed.keys() - plain.keys() == {"mixup"}
    for name in plain:
        torch.testing.assert_close(mixed[name], plain[name])


def test_mixing_at_a_layer_equals_doing_it_by_hand(step: SimpleNamespace) -> None:
    body, share = step.network.backbone.body, 0.3
    hidden = body.stem(step.images)
    hidden = share * hidden + (1 - share) * hidden[PARTNER]
    embeddings = body.stage2(body.stage1(hidden.relu()).relu())
    out = Output(embeddings, embeddings)
    own, other = step.objective(out, LABELS), step.objective(out, LABELS[PARTNER])
    mixed = mixed_terms(
        step.network, step.objective, step.images, LABELS, share, PARTNER, "backbone.body.stem"
    )
    for name in own:
        torch.testing.assert_close(mixed[name], share * own[name] + (1 - share) * other[name])
    assert mixed["mixup"].item() == pytest.approx(share)


def test_where_labels_agree_the_weights_add_up_to_one(step: SimpleNamespace) -> None:
    """Partners of the same class: the labels after the permutation are those before it."""
    swap = torch.tensor([1, 0, 3, 2, 5, 4])
    mixed = mixed_terms(step.network, step.objective, step.images, LABELS, 0.4, swap, INPUT)
    images = 0.4 * step.images + 0.6 * step.images[swap]
    plain = step.objective(step.network(images), LABELS)
    torch.testing.assert_close(mixed["total"], plain["total"])


def test_draws_depend_on_seed_and_step_alone(step: SimpleNamespace) -> None:
    mixup = ManifoldMixup(seed=4)

    def terms(at: int, by: ManifoldMixup = mixup) -> tuple[float, float]:
        found = by(step.network, step.objective, step.images, LABELS, at)
        return found["mixup"].item(), found["total"].item()

    first = [terms(at) for at in range(5)]
    assert [terms(at) for at in (3, 1)] == [first[3], first[1]], "any order, as after a resume"
    assert len(set(first)) == 5
    assert terms(0, ManifoldMixup(seed=5)) != first[0]


def test_shares_follow_beta_two_two(step: SimpleNamespace) -> None:
    mixup = ManifoldMixup(layers=[INPUT])
    shares = torch.tensor(
        [
            mixup(step.network, step.objective, step.images, LABELS, at)["mixup"].item()
            for at in range(400)
        ]
    )
    assert float(shares.mean()) == pytest.approx(0.5, abs=5 * (0.05 / 400) ** 0.5)
    assert float(shares.var()) == pytest.approx(0.05, rel=0.25)


def test_no_hook_is_left_behind_even_after_an_error(step: SimpleNamespace) -> None:
    layer = "backbone.body.stem"
    with pytest.raises(RuntimeError):
        mixed_terms(step.network, step.objective, step.images[:, :2], LABELS, 0.5, PARTNER, layer)
    mixed_terms(step.network, step.objective, step.images, LABELS, 0.5, PARTNER, layer)
    assert not step.network.get_submodule(layer)._forward_hooks


def test_layers_are_chosen_or_checked(step: SimpleNamespace) -> None:
    assert early_layers(step.network) == ["backbone.body.stem", "backbone.body.stage1"]
    with pytest.raises(ValueError, match=r"no layer named stage9: choose from input, backbone"):
        ManifoldMixup(["stage9"])(step.network, step.objective, step.images, LABELS, 0)
    with pytest.raises(ValueError, match="concentration must be above 0, got 0"):
        ManifoldMixup(concentration=0)
    with pytest.raises(ValueError, match="at least one layer"):
        ManifoldMixup([])
