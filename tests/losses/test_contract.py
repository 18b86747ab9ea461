"""What every loss promises, for every name in the catalogue: a new file is covered by being there.

What a loss does not promise (rotation, scale, ...) it says itself, in attributes that
losses/base.py explains. Numbers, loops and peers are in the loss's own test.
"""

import copy
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.core import registry
from unseen.core.contracts import Output
from unseen.core.relevance import KINDS, Labels, Relevance
from unseen.core.tuples import Pairs, Triplets, all_pairs, relations
from unseen.losses.base import LabelLoss, Loss
from unseen.training.objective import MinedObjective, kinds_taken

NAMES = registry.names("losses")
CLASSES, SIZE = 4, 8
NOTHING = torch.empty(0, dtype=torch.long)


def takes_tuples(name: str) -> bool:
    return not issubclass(registry.find("losses", name), LabelLoss)


def indexes_by_label(name: str) -> bool:
    return "num_classes" in {p.name for p in registry.parameters(registry.find("losses", name))}


def variants(name: str) -> list[tuple[str, str | None]]:
    """The defaults and every preset that differs in more than learning rates."""
    seen: dict[str, str | None] = {}
    for preset in (None, *registry.entry("losses", name).presets):
        values = registry.preset_values("losses", name, preset)
        seen.setdefault(str({k: v for k, v in values.items() if k != "lr"}), preset)
    return [(name, preset) for preset in seen.values()]


VARIANTS = [variant for name in NAMES for variant in variants(name)]
TUPLE_NAMES = [name for name in NAMES if takes_tuples(name)]
TUPLE_VARIANTS = [variant for variant in VARIANTS if takes_tuples(variant[0])]


def make(name: str, preset: str | None = None, size: int = SIZE, **given: Any) -> Loss:
    """With class vectors, if any, that are the same in every test."""
    loss: Loss = registry.create(
        "losses", name, given, preset, num_classes=CLASSES, embedding_size=size
    )
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in loss.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return loss.double()


def batch(seed: int = 0, size: int = SIZE) -> tuple[Tensor, Tensor]:
    """Twelve items in classes of 1, 2, 3 and 6, in no order."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3])
    x = torch.randn(12, size, generator=draw, dtype=torch.float64)
    return x, labels[torch.randperm(12, generator=draw)]


def without_penalties(name: str, preset: str | None = None) -> Loss:
    """The loss without the terms that do not depend on tuples."""
    zeros = dict.fromkeys(registry.find("losses", name).batch_free_weights, 0.0)
    return make(name, preset, **zeros)


def value_and_gradients(loss: Loss, x: Tensor, y: Tensor, *given: Any) -> list[Tensor]:
    loss.zero_grad()
    x = x.clone().requires_grad_()
    value = loss(x, y, *given)
    assert value.ndim == 0
    assert value.requires_grad
    value.backward()
    gradients = [x.grad, *(p.grad.clone() for p in loss.parameters() if p.grad is not None)]
    return [value.detach(), *gradients]


def assert_finite(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        assert tensor.isfinite().all()


@pytest.mark.parametrize(("name", "preset"), [v for v in VARIANTS if make(*v).exact_gradient])
def test_gradient_on_the_fixed_batch(spec: SimpleNamespace, name: str, preset: str | None) -> None:
    loss = make(name, preset, size=2)
    noise = torch.randn(spec.T.shape, generator=torch.Generator().manual_seed(1)).double()
    names, values = zip(*loss.named_parameters(), strict=True) if [*loss.parameters()] else ((), ())

    def priced(x: Tensor, *parameters: Tensor) -> Tensor:
        renamed = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(loss, renamed, (x, spec.labels))

    x = (spec.T + 1e-3 * noise).requires_grad_()
    assert torch.autograd.gradcheck(priced, (x, *values), eps=1e-7, atol=1e-4)


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_finite_where_roots_and_angles_are_not(
    spec: SimpleNamespace, name: str, preset: str | None
) -> None:
    loss = make(name, preset, size=2)
    opposite = torch.cat([spec.T[:3], -spec.T[:3]])
    duplicates = spec.T.repeat(2, 1)
    for x, y in (
        (spec.COL, spec.labels),
        (spec.COL * 0, spec.labels),
        (opposite, spec.labels),
        (opposite, torch.tensor([0, 1, 2, 0, 1, 2])),
        (duplicates, spec.labels.repeat(2)),
        (duplicates, torch.arange(12) % CLASSES),
    ):
        assert_finite(value_and_gradients(loss.double(), x, y))
        assert_finite(value_and_gradients(loss.float(), x.float(), y))
    with torch.no_grad():
        for vectors in loss.parameters():
            if vectors.ndim > 1:
                vectors.copy_(spec.COL[0])
    for sign in (1, -1):
        assert_finite(value_and_gradients(loss.double(), sign * spec.COL, spec.labels))
        assert_finite(value_and_gradients(loss.float(), sign * spec.COL.float(), spec.labels))


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_order_of_items_does_not_matter(name: str, preset: str | None) -> None:
    loss = make(name, preset)
    x, y = batch()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    value, gradient, *rest = value_and_gradients(loss, x, y)
    moved_value, moved_gradient, *moved_rest = value_and_gradients(loss, x[order], y[order])
    torch.testing.assert_close(moved_value, value)
    torch.testing.assert_close(moved_gradient, gradient[order])
    torch.testing.assert_close(moved_rest, rest)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_classes_do_not_matter(name: str) -> None:
    loss = make(name)
    x, y = batch()
    value = loss(x, y)
    renamed = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        for parameter in loss.parameters():
            if parameter.ndim and len(parameter) == CLASSES:
                parameter.copy_(parameter[renamed.argsort()])
    torch.testing.assert_close(loss(x, renamed[y]), value)
    if not indexes_by_label(name):
        for offset in (-5, 2**25, 2**40):  # beyond what a float32 tells apart
            torch.testing.assert_close(loss(x, y + offset), value)


@pytest.mark.parametrize("name", [name for name in NAMES if not indexes_by_label(name)])
def test_classes_numbered_beyond_float32_stay_apart(name: str) -> None:
    loss = make(name)
    x, y = batch()
    torch.testing.assert_close(loss(x, 2**24 + y), loss(x, 7 * y))


@pytest.mark.parametrize(("name", "preset"), TUPLE_VARIANTS)
def test_nothing_to_compare_costs_nothing(name: str, preset: str | None) -> None:
    loss = without_penalties(name, preset)
    x, y = batch()
    for given in (
        (x[:0], y[:0]),
        (x[:1], y[:1]),
        (x, y, Triplets(*[NOTHING] * 3)),
        (x, y, Pairs(*[NOTHING] * 4)),
        (x, y, None, x[:0], y[:0]),
    ):
        value, *gradients = value_and_gradients(loss, *given)
        assert value == 0
        assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize(("name", "preset"), TUPLE_VARIANTS)
def test_pairs_of_one_kind_cost_nothing_unless_said(name: str, preset: str | None) -> None:
    loss = without_penalties(name, preset)
    x, _ = batch()
    for labels in (torch.zeros(CLASSES, dtype=torch.long), torch.arange(CLASSES)):
        value, *gradients = value_and_gradients(loss, x[:CLASSES], labels)
        assert_finite([value, *gradients])
        if loss.one_sided:
            assert value >= 0 if preset else value > 0  # a small margin may leave nothing active
        else:
            assert value == 0
            assert not any(gradient.any() for gradient in gradients)


PENALISED = [n for n in NAMES if registry.find("losses", n).batch_free_weights]


@pytest.mark.parametrize("name", PENALISED)
def test_penalties_need_no_tuples(name: str) -> None:
    loss = make(name)
    x, _ = batch()
    value, gradient, *_ = value_and_gradients(loss, x, torch.arange(12))
    assert value > 0
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_rotation(name: str, preset: str | None) -> None:
    loss = make(name, preset)
    x, y = batch()
    value = loss(x, y)
    rotation, _ = torch.linalg.qr(batch(1)[0][:SIZE])
    with torch.no_grad():
        for vectors in loss.parameters():
            if vectors.ndim > 1 and vectors.shape[-1] == SIZE:
                vectors.copy_(vectors @ rotation)
    unchanged = torch.allclose(loss(x @ rotation, y), value)
    assert unchanged == loss.rotation_invariant


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_scale(name: str, preset: str | None) -> None:
    loss = make(name, preset)
    x, y = batch()
    lengths = torch.linspace(0.01, 30, 12).double()[:, None]
    unchanged = torch.allclose(loss(x * lengths, y), loss(x, y))
    assert unchanged == loss.scale_invariant


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_a_small_step_downhill_goes_down(
    spec: SimpleNamespace, name: str, preset: str | None
) -> None:
    loss = make(name, preset, size=2)
    x = spec.T.clone().requires_grad_()
    value = loss(x, spec.labels)
    (gradient,) = torch.autograd.grad(value, x)
    assert gradient.any()
    step = 1e-4 / gradient.norm()
    assert loss(x - step * gradient, spec.labels) < value


@pytest.mark.parametrize("name", NAMES)
def test_perfect_embeddings_cost_least(name: str) -> None:
    loss = make(name)
    corners = torch.eye(SIZE, dtype=torch.float64)[:CLASSES]
    with torch.no_grad():
        for vectors in loss.parameters():
            if vectors.ndim > 1 and vectors.shape[-1] == SIZE:
                vectors.copy_(corners.view(CLASSES, *[1] * (vectors.ndim - 2), SIZE))
    y = torch.arange(12) % CLASSES
    best = loss(corners[y], y)
    for seed in range(20):
        x = torch.nn.functional.normalize(batch(seed)[0])
        assert best < loss(x, y)


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_half_precision_is_raised(name: str, preset: str | None) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        check_half_precision(make(name, preset).float(), dtype)


def check_half_precision(loss: Loss, dtype: torch.dtype) -> None:
    x, y = batch()
    half = x.to(dtype)
    result = value_and_gradients(loss, half, y)
    assert_finite(result)
    assert result[0].dtype == torch.float32
    expected = loss(half.float(), y)
    assert result[0] == expected.detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(half, y) == expected
    if not isinstance(loss, LabelLoss):
        torch.testing.assert_close(
            loss(half, y, None, half, y), loss(half.float(), y, None, half, y)
        )


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_float32_is_near_float64(name: str, preset: str | None) -> None:
    x, y = batch()
    exact = value_and_gradients(make(name, preset), x, y)
    near = value_and_gradients(make(name, preset).float(), x.float(), y)
    for result, expected in zip(near, exact, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if not takes_tuples(name)])
def test_label_losses_refuse_tuples_and_references(name: str) -> None:
    loss = make(name)
    x, y = batch()
    for given in ((all_pairs(*relations(y)),), (None, x, y)):
        with pytest.raises(ValueError, match="neither"):
            loss(x, y, *given)


@pytest.mark.parametrize(("name", "preset"), TUPLE_VARIANTS)
def test_no_tuples_means_all_tuples_and_references_are_columns(
    name: str, preset: str | None
) -> None:
    loss = make(name, preset)
    x, y = batch()
    pairs = all_pairs(*relations(y))
    value = loss(x, y)
    torch.testing.assert_close(loss(x, y, pairs), value)
    torch.testing.assert_close(loss(x, y, tuple(pairs)), value)
    torch.testing.assert_close(loss(x, y, pairs, x, y), value)


@pytest.mark.parametrize("name", TUPLE_NAMES)
def test_tuples_that_point_outside_are_refused(name: str) -> None:
    """Instead of meaning another pair: 9 of a batch of 4 is neither item 1 nor an IndexError."""
    loss = make(name)
    x, y = batch()
    x, y, rx, ry = x[:4], torch.tensor([0, 0, 1, 1]), x[4:], y[4:]
    within, nobody = torch.tensor([0, 2]), torch.tensor([0])
    for wrong in (torch.tensor([1, 9]), torch.tensor([1, 4]), torch.tensor([1, -1])):
        listed = [(wrong, within, within), (within, wrong, within), (within, within, wrong)]
        listed += [(within, within, wrong, within), (within, within, within, wrong)]
        for tuples in listed:
            with pytest.raises(ValueError, match="tuples must point at items 0 to 3"):
                loss(x, y, tuples)
    far = torch.tensor([7, 5])
    assert loss(x, y, Triplets(within, far, far), rx, ry).isfinite()  # 8 references
    with pytest.raises(ValueError, match="tuples must point at references 0 to 7"):
        loss(x, y, Triplets(within, far, far + 1), rx, ry)
    with pytest.raises(ValueError, match="tuples must point at items 0 to 3"):
        loss(x, y, Triplets(far, far, far), rx, ry)
    for wrong in ((nobody, within, within), (within, within, within, nobody)):
        with pytest.raises(ValueError, match="as many"):
            loss(x, y, wrong)


@pytest.mark.parametrize("name", [name for name in NAMES if indexes_by_label(name)])
def test_labels_without_a_parameter_are_refused(name: str) -> None:
    loss = make(name)
    x, y = batch()
    for wrong in (-1, CLASSES):
        with pytest.raises(ValueError, match=f"labels must be 0 to {CLASSES - 1}.*{wrong}"):
            loss(x, torch.where(y == 1, wrong, y))


@pytest.mark.parametrize(("name", "preset"), [v for v in VARIANTS if make(*v).scale_invariant])
def test_short_embeddings_have_a_direction_too(name: str, preset: str | None) -> None:
    loss = make(name, preset).float()
    x, y = batch()
    expected = value_and_gradients(loss, x.float(), y)
    for scale in (1e-7, 1e-15):
        result = value_and_gradients(loss, scale * x.float(), y)
        result[1] = scale * result[1]  # a step changes a short vector's direction the more
        for value, wanted in zip(result, expected, strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", TUPLE_NAMES)
def test_gradient_reaches_references(name: str) -> None:
    loss = make(name)
    x, y = batch()
    rx, ry = batch(3)
    rx.requires_grad_()
    result = value_and_gradients(loss, x, y, None, rx[:10], ry[:10])
    assert_finite(result)
    assert rx.grad[:10].isfinite().all()
    assert rx.grad[:10].any()
    order = torch.randperm(10, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(
        loss(x, y, None, rx[order], ry[order]), loss(x, y, None, rx[:10], ry[:10])
    )


@pytest.mark.parametrize("name", NAMES)
def test_state_and_copies(name: str) -> None:
    loss = make(name)
    x, y = batch()
    again = registry.create("losses", name, num_classes=CLASSES, embedding_size=SIZE).double()
    again.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert again(x, y) == loss(x, y)
    assert copy.deepcopy(loss)(x, y) == loss(x, y)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_reach_the_optimizer_once(name: str) -> None:
    loss = make(name)
    grouped = [p for group in loss.parameter_groups(0.01) for p in group["params"]]
    assert {id(p) for p in grouped} == {id(p) for p in loss.parameters()}
    assert len(grouped) == len(list(loss.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_a_spoilt_embedding_is_not_hidden(name: str) -> None:
    x, y = batch()
    x[y == 3] = math.nan
    assert make(name)(x, y).isnan()


@pytest.mark.parametrize("name", NAMES)
def test_wrong_shapes_and_types_are_refused(name: str) -> None:
    loss = make(name)
    x, y = batch()
    for wrong in ((x, y[:5]), (x[0], y), (x, y.double()), (x, y, None, x, None)):
        with pytest.raises(ValueError, match=r"labels|embeddings|ref_"):
            loss(*wrong)
    with pytest.raises(ValueError, match=r"labels must be a tensor .* got list: torch.as_tensor"):
        loss(x, y.tolist())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="embeddings must be a tensor"):
        loss(x.numpy(), y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="both be tensors, or both be of a relevance"):
        loss(x, y, None, x, Labels(y.numpy()).of(torch.arange(12)))
    with pytest.raises(ValueError, match=r"dimensions|neither"):
        loss(x, y, None, x[:, :3], y)
    with pytest.raises(ValueError, match="tuples must be"):
        loss(x, y, (NOTHING, NOTHING))


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_relevance_stands_where_labels_do(name: str, preset: str | None) -> None:
    """Classes as a relevance are the classes."""
    loss = make(name, preset)
    x, y = batch()
    items = Labels(y.numpy()).of(torch.arange(12))
    if loss.needs_classes:
        with pytest.raises(ValueError, match="labels are no classes"):
            loss(x, items)
        return
    torch.testing.assert_close(
        value_and_gradients(make(name, preset), x, items),  # type: ignore[arg-type]
        value_and_gradients(loss, x, y),
    )
    references = (x[:7], items[:7])
    torch.testing.assert_close(
        make(name, preset)(x, items, None, *references),
        make(name, preset)(x, y, None, x[:7], y[:7]),
    )


@pytest.mark.parametrize(("name", "preset"), VARIANTS)
def test_every_kind_has_a_price_or_is_refused_at_construction(
    name: str, preset: str | None, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    """What is known of a pair decides: items of which nobody knows anything have no gradient."""
    x, y = batch()
    plain = make(name, preset)(x, y)
    every = kinds(y)
    assert set(every) == set(KINDS)
    for kind, relevance in every.items():
        loss = make(name, preset)
        if kind not in kinds_taken(loss):
            with pytest.raises(ValueError, match=rf"relevance.kind={kind}; the losses that can: "):
                MinedObjective(loss, relevance=relevance)
            continue
        objective, embeddings = MinedObjective(loss, relevance=relevance), x.clone()
        price = objective(Output(embeddings.requires_grad_(), x), y, torch.arange(12))["total"]
        (gradient,) = torch.autograd.grad(price, embeddings)
        assert gradient.isfinite().all()
        assert gradient.any()
        as_classes = kind == "labels" or (kind == "levels" and not hasattr(loss, "on_grades"))
        if as_classes:
            torch.testing.assert_close(price, plain)
        elif takes_tuples(name):
            torch.testing.assert_close(price, loss(x, relevance.of(torch.arange(12))))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_loss_takes_is_what_it_says(name: str) -> None:
    taken = kinds_taken(registry.find("losses", name))
    assert ("label_sets" in taken) == ("pairs" in taken) == (not make(name).needs_classes)
    assert ("graded" in taken) == hasattr(make(name), "on_grades")
