"""Every loss with class parameters: they get their learning rate, they learn, they are saved."""

import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.losses.base import LabelLoss

NAMES = [n for n in registry.names("losses") if issubclass(registry.find("losses", n), LabelLoss)]

# of proxies, centres, class vectors and boundaries, where none is given
PUBLISHED_RATES = {
    "arcface": 5e-4,
    "margin": 5e-4,
    "normalized_softmax": 2e-3,
    "proxy_anchor": 1e-2,
    "proxy_nca": 5e-4,
    "proxy_repulsion": 1e-2,
    "soft_triple": 1e-2,
    "sub_center_arcface": 5e-4,
}


def build(name: str, preset: str | None = None, **given: object) -> LabelLoss:
    torch.manual_seed(0)
    context = {"num_classes": 5, "embedding_size": 4}
    loss: LabelLoss = registry.create("losses", name, dict(given), preset, **context)
    return loss


def batch(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 4, generator=generator, dtype=dtype), torch.arange(12) % 5


def test_there_are_label_losses() -> None:
    assert len(NAMES) >= 7


@pytest.mark.parametrize("name", NAMES)
def test_training_moves_the_class_parameters_and_lowers_the_loss(name: str) -> None:
    loss = build(name)
    embeddings, labels = batch()
    start = {key: value.clone() for key, value in loss.state_dict().items()}
    first = loss(embeddings, labels).item()
    optimizer = torch.optim.SGD(loss.parameter_groups(1e-3), lr=1e-3, weight_decay=0.0)
    for _ in range(10):
        optimizer.zero_grad()
        loss(embeddings, labels).backward()
        optimizer.step()
    assert loss(embeddings, labels).item() < first
    for key, value in loss.state_dict().items():
        # every class is in the batch, so every class's own vector moves
        assert ((value - start[key]).flatten(1).norm(dim=1) > 0).all(), key


@pytest.mark.parametrize("name", NAMES)
def test_parameter_groups_hold_every_parameter_once_with_its_rate_and_decay(name: str) -> None:
    loss = build(name)
    (group,) = loss.parameter_groups(1e-4)
    assert {id(p) for p in group["params"]} == {id(p) for p in loss.parameters()}
    assert group.get("weight_decay") == loss.own_weight_decay
    (group,) = build(name, lr=0.03).parameter_groups(1e-4)
    assert group["lr"] == 0.03
    (group,) = build(name, lr=None).parameter_groups(1e-4)
    assert group["lr"] == 1e-4


@pytest.mark.parametrize("name", [*NAMES, "margin"])
def test_the_own_rate_does_not_follow_that_of_the_run(name: str) -> None:
    rates = {build(name).parameter_groups(lr)[0]["lr"] for lr in (1e-5, 1e-3)}
    if name == "softmax":  # a layer like the network's
        assert rates == {1e-5, 1e-3}
    else:
        assert rates == {PUBLISHED_RATES[name]}


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_builds_and_prices(name: str) -> None:
    for preset in registry.find("losses", name).PRESETS:  # type: ignore[attr-defined]
        assert torch.isfinite(build(name, preset)(*batch())), preset


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_embeddings_and_parameters(name: str) -> None:
    loss = build(name).double()
    embeddings, labels = batch(torch.float64)
    embeddings.requires_grad_()
    own = [p.requires_grad_() for p in loss.parameters()]
    assert torch.autograd.gradcheck(lambda *_: loss(embeddings, labels), (embeddings, *own))


@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_restores_the_value(name: str) -> None:
    loss, other = build(name), build(name)
    for parameter in other.parameters():
        parameter.data.add_(torch.randn(parameter.shape))
    embeddings, labels = batch()
    assert loss(embeddings, labels) != other(embeddings, labels)
    other.load_state_dict(loss.state_dict())
    assert loss(embeddings, labels) == other(embeddings, labels)


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_of_another_precision_than_the_parameters(name: str) -> None:
    loss = build(name)
    embeddings, labels = batch(torch.float64)
    assert loss(embeddings, labels).dtype == torch.float64
    assert loss(embeddings, labels).item() == pytest.approx(
        loss(embeddings.float(), labels).item(), rel=1e-4, abs=1e-4
    )
    assert loss(embeddings.bfloat16(), labels).dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_the_wrong_batch_is_named(name: str) -> None:
    loss = build(name)
    embeddings, labels = batch()
    with pytest.raises(ValueError, match="0 to 4"):
        loss(embeddings, labels + 1)
    with pytest.raises(ValueError, match="0 to 4"):
        loss(embeddings, labels - 1)
    with pytest.raises(ValueError, match="embedding_size=4"):
        loss(torch.randn(12, 3), labels)
    with pytest.raises(ValueError, match="neither"):
        loss(embeddings, labels, (labels, labels, labels))
    with pytest.raises(ValueError, match="neither"):
        loss(embeddings, labels, None, embeddings, labels)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrong", [{"num_classes": 0}, {"embedding_size": 0}, {"lr": -1.0}], ids=lambda w: next(iter(w))
)
def test_bad_sizes_and_rates_are_refused(name: str, wrong: dict[str, float]) -> None:
    values: dict[str, float] = {"num_classes": 5, "embedding_size": 4} | wrong
    with pytest.raises(ValueError, match=next(iter(wrong))):
        registry.find("losses", name)(**values)
