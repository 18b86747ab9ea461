"""What every regularizer promises, for every name in the catalogue: a new file is covered by being
there. Numbers and loops are in the regularizer's own test."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unseen.core import registry
from unseen.core.contracts import Output
from unseen.core.relevance import Labels, Relevance
from unseen.losses.graded_supcon import GradedSupconLoss
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.training.objective import MinedObjective, kinds_taken

NAMES = registry.names("regularizers")
VARIANTS = [
    (name, preset)
    for name in NAMES
    for preset in (None, *registry.entry("regularizers", name).presets)
]
CLASSES, SIZE, CHANNELS = 4, 6, 3
LABELS = torch.tensor([0, 0, 0, 1, 1, 3, 3, 3])
UNDEFINED = {
    "one class": torch.zeros(6, dtype=torch.long),
    "one image per class": torch.arange(4),
    "one item": torch.tensor([2]),
    "no item": torch.zeros(0, dtype=torch.long),
}


def make(name: str, preset: str | None = None, features: int = 7, **given: Any) -> Any:
    """With small sizes where it asks for them, prepared if it wants to be, in float64."""
    takes = {p.name for p in registry.parameters(registry.find("regularizers", name))}
    fewer = {"dimension": 12, "num_orders": 3, "sizes": [4, 5]}
    small = {key: value for key, value in fewer.items() if key in takes}
    made = registry.create(
        "regularizers",
        name,
        small | given,
        preset,
        num_classes=CLASSES,
        embedding_size=SIZE,
        num_channels=CHANNELS,
        num_features=features,
        make_loss=lambda size: MultiSimilarityLoss(),
        miner=None,
        seed=0,
    ).double()
    if not getattr(made, "is_prepared", True):
        made.prepare(output(LABELS, seed=9).pooled, LABELS)
    return made


def output(labels: Tensor, seed: int = 0, dtype: torch.dtype = torch.float64) -> Output:
    draw = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        drawn = torch.randn(len(labels), *shape, generator=draw, dtype=torch.float64)
        return drawn.to(dtype).requires_grad_()

    return Output(random(SIZE), random(7), random(CHANNELS, 1, 2), random(2, 3))


def inputs(of: Output) -> list[Tensor]:
    return [x for x in (of.embeddings, of.pooled, of.maps, of.heads) if x is not None]


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_a_finite_scalar_with_finite_gradients(name: str, preset: str | None) -> None:
    regularizer, out = make(name, preset), output(LABELS)
    value = regularizer(out, LABELS)
    assert value.shape == ()
    value.backward()
    assert math.isfinite(value.item())
    gradients = [x.grad for x in inputs(out) if x.grad is not None]
    assert any(bool(g.any()) for g in gradients), "it acts on the network"
    assert all(bool(g.isfinite().all()) for g in gradients)
    assert regularizer.report(), "it shows what it does"
    for key, noted in regularizer.report().items():
        assert noted.shape == (), key
        assert not noted.requires_grad, key
        assert bool(noted.isfinite()), key


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
@pytest.mark.parametrize("case", UNDEFINED)
@pytest.mark.parametrize("collapsed", [False, True])
def test_a_batch_that_leaves_it_undefined_is_finite_and_has_a_graph(
    name: str, preset: str | None, case: str, collapsed: bool
) -> None:
    regularizer, labels = make(name, preset), UNDEFINED[case]
    out = output(labels)
    if collapsed:
        out = Output(*(torch.ones_like(x).requires_grad_() for x in inputs(out)))
    value = regularizer(out, labels)
    assert value.requires_grad
    value.backward()
    assert math.isfinite(value.item())
    assert all(x.grad is None or bool(x.grad.isfinite().all()) for x in inputs(out))
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in regularizer.parameters())
    assert all(bool(noted.isfinite()) for noted in regularizer.report().values())


@pytest.mark.parametrize("name", NAMES)
def test_a_dead_network_gives_no_nan(name: str) -> None:
    out = Output(*(torch.zeros_like(x).requires_grad_() for x in inputs(output(LABELS))))
    value = make(name)(out, LABELS)
    value.backward()
    assert math.isfinite(value.item())
    assert all(x.grad is None or not bool(x.grad.isnan().any()) for x in inputs(out))


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_gradcheck(name: str, preset: str | None) -> None:
    regularizer, out = make(name, preset), output(LABELS, seed=4)
    if not regularizer.exact_gradient:
        return

    def price(*tensors: Tensor) -> Tensor:
        value: Tensor = regularizer(Output(*tensors), LABELS)
        return value

    assert torch.autograd.gradcheck(price, inputs(out))


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck_of_its_own_parameters(name: str) -> None:
    regularizer, out = make(name), output(LABELS, seed=4)
    own = {key: p for key, p in regularizer.named_parameters() if p.requires_grad}
    if not own or not regularizer.exact_gradient:
        return

    def price(*values: Tensor) -> Tensor:
        given = dict(zip(own, values, strict=True))
        value: Tensor = torch.func.functional_call(regularizer, given, (out, LABELS))
        return value

    assert torch.autograd.gradcheck(price, tuple(own.values()))


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(order=st.permutations(range(8)), seed=st.integers(0, 99))
def test_the_order_of_items_does_not_matter(
    name: str, preset: str | None, order: list[int], seed: int
) -> None:
    regularizer, out = make(name, preset), output(LABELS, seed)
    moved = Output(*(x[order] for x in inputs(out)))
    torch.testing.assert_close(regularizer(moved, LABELS[order]), regularizer(out, LABELS))


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_raised_at_the_door(name: str) -> None:
    regularizer = make(name).float()
    half = output(LABELS, dtype=torch.bfloat16)
    full = Output(*(x.float() for x in inputs(half)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = regularizer(half, LABELS)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, regularizer(full, LABELS))


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip(name: str) -> None:
    one, two, out = make(name), make(name), output(LABELS)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.add_(0.1)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(out, LABELS), two(out, LABELS))
    assert getattr(two, "is_prepared", True)


@pytest.mark.parametrize("name", NAMES)
def test_every_trainable_parameter_is_in_one_optimizer_group(name: str) -> None:
    regularizer = make(name)
    groups = regularizer.parameter_groups(0.01)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in regularizer.parameters() if p.requires_grad)
    if groups:
        torch.optim.AdamW(groups, lr=0.01).step()


@pytest.mark.parametrize("name", NAMES)
def test_what_the_network_lacks_is_named(name: str) -> None:
    """Without maps and heads it works, or says which of them it needs."""
    out = output(LABELS)
    bare = Output(out.embeddings, out.pooled)
    try:
        value = make(name)(bare, LABELS)
    except ValueError as error:
        assert "map" in str(error) or "heads" in str(error)  # noqa: PT017
    else:
        assert math.isfinite(value.item())


@pytest.mark.parametrize("name", NAMES)
def test_labels_must_be_integers_and_as_many_as_items(name: str) -> None:
    regularizer, out = make(name), output(LABELS)
    with pytest.raises(ValueError, match="labels must be integers"):
        regularizer(out, LABELS.float())
    with pytest.raises(ValueError, match=r"embeddings must be \[N, D\] and labels \[N\]"):
        regularizer(out, LABELS[:3])


class Tiny(nn.Module):
    """A network with everything a regularizer may ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, CHANNELS, 1)
        self.head = nn.Linear(CHANNELS, SIZE)

    def forward(self, images: Tensor) -> Output:
        maps = self.convolution(images).relu()
        pooled = maps.mean(dim=(2, 3))
        embeddings = self.head(pooled)
        first, second = embeddings.split(SIZE // 2, dim=1)
        heads = torch.stack([first, first + 0.1 * second], dim=1)  # much alike: room to diverge
        return Output(embeddings, pooled, maps, heads)


def trained(regularizers: list[Any], steps: int = 4) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = Tiny().double()
    objective = MinedObjective(MultiSimilarityLoss(), None, regularizers).double()
    groups = [{"params": list(network.parameters())}, *objective.parameter_groups(0.05)]
    optimizer = torch.optim.AdamW(groups, lr=0.05)
    draw = torch.Generator().manual_seed(2)
    terms: dict[str, Tensor] = {}
    for _ in range(steps):
        images = torch.randn(8, 2, 3, 3, generator=draw, dtype=torch.float64)
        terms = objective(network(images), LABELS)
        optimizer.zero_grad()
        terms["total"].backward()
        optimizer.step()
    return copy.deepcopy(network.state_dict()), terms


@pytest.mark.parametrize("name", NAMES)
def test_weight_zero_equals_without(name: str) -> None:
    plain, _ = trained([])
    with_it, terms = trained([(name, 0.0, make(name, features=CHANNELS))])
    assert all(torch.equal(plain[key], with_it[key]) for key in plain)
    assert name in terms, "its term is still told"
    weighed, _ = trained([(name, 0.5, make(name, features=CHANNELS))])
    assert not all(torch.equal(plain[key], weighed[key]) for key in plain)


def test_any_number_at_once() -> None:
    weighted = [(name, 0.1, make(name, features=CHANNELS)) for name in NAMES]
    _, terms = trained([*weighted, ("again", 0.1, make(NAMES[0]))])
    total = terms["loss"] + 0.1 * sum(terms[name] for name in [*NAMES, "again"])
    torch.testing.assert_close(terms["total"], total)
    with pytest.raises(ValueError, match="a name of its own"):
        MinedObjective(MultiSimilarityLoss(), None, [weighted[0], weighted[0]])


@pytest.mark.parametrize("name", NAMES)
def test_relevance_stands_where_labels_do(name: str) -> None:
    items = Labels(LABELS.numpy()).of(torch.arange(len(LABELS)))
    made = make(name)
    if made.needs_classes:
        with pytest.raises(ValueError, match="labels are no classes"):
            made(output(LABELS), items)
        return
    result, wanted = copy.deepcopy(made)(output(LABELS), items), made(output(LABELS), LABELS)
    torch.testing.assert_close(result, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_has_a_price_or_is_refused_at_construction(
    name: str, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    """Beside a loss that reads grades. Levels are classes to a part that needs some."""
    made = make(name)
    plain = copy.deepcopy(made)(output(LABELS), LABELS)
    for kind, relevance in kinds(LABELS).items():
        part = (name, 1.0, copy.deepcopy(made))
        if kind not in kinds_taken(part[2]):
            with pytest.raises(ValueError, match=rf"relevance.kind={kind}; the .* that can: "):
                MinedObjective(GradedSupconLoss(), None, [part], relevance=relevance)
            continue
        objective = MinedObjective(GradedSupconLoss(), None, [part], relevance=relevance)
        out = output(LABELS)
        price = objective(out, LABELS, torch.arange(len(LABELS)))[name]
        price.backward()
        assert price.isfinite()
        if kind in ("labels", "levels"):
            torch.testing.assert_close(price, plain)


def test_losses_inside_a_regularizer_are_checked_too(
    kinds: Callable[[Tensor], dict[str, Relevance]],
) -> None:
    horde = make("horde")
    with pytest.raises(
        ValueError, match=r"MultiSimilarityLoss cannot .*graded; the losses that can"
    ):
        MinedObjective(
            GradedSupconLoss(), None, [("horde", 1, horde)], relevance=kinds(LABELS)["graded"]
        )
