"""Density adaptivity: loops, the worked examples, targets at their best, preparation."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.core.contracts import Output
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.regularizers.density import DensityRegularizer, spreads
from unseen.training.objective import MinedObjective


def with_targets(alpha: list[float], q: list[float] | None, **given: Any) -> DensityRegularizer:
    made = DensityRegularizer(len(alpha), d0="none" if q is None else "initial", **given).double()
    with torch.no_grad():
        made.alpha.copy_(torch.tensor(alpha))
        if q is not None:
            made.q.copy_(torch.tensor(q))
    return made


def slow(x: Tensor, labels: Tensor, alpha: list[float], q: list[float]) -> float:
    x = F.normalize(x, dim=1)
    spread = {}
    for label in sorted(set(labels.tolist())):
        own = [x[i] for i in range(len(x)) if labels[i] == label]
        if len(own) > 1:
            mean = sum(own) / len(own)
            spread[label] = sum(float((v - mean).square().sum()) for v in own) / len(own)
    count = len(spread)
    total = sum((spread[c] - alpha[c]) ** 2 - alpha[c] for c in spread) / count
    for i in spread:
        for j in spread:
            total += (q[j] * alpha[i] - q[i] * alpha[j]) ** 2 / count**2
    return total


def test_worked_example() -> None:
    """D = (0.1, 0.1), L = 0.16 - 0.5 + 0.125 = -0.215, gradient of the targets (-0.6, 0.9)."""
    x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [-0.6, 0.8]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])
    regularizer = with_targets([0.5, 0.5], [2.0, 1.0])
    value = regularizer(Output(x, x), labels)
    value.backward()
    assert value.item() == pytest.approx(-0.215)
    assert regularizer.alpha.grad is not None
    assert regularizer.alpha.grad.tolist() == pytest.approx([-0.6, 0.9])
    report = regularizer.report()
    assert report["mean_spread"].item() == pytest.approx(0.1)
    assert report["balance"].item() == pytest.approx(0.125)


def test_on_the_fixed_batch(spec: SimpleNamespace) -> None:
    spread, classes, counts = spreads(spec.T, spec.labels)
    assert spread.tolist() == pytest.approx([0.0468, 0.2730, 0.2653], abs=5e-5)
    assert (classes.tolist(), counts.tolist()) == ([0, 1, 2], [2, 2, 2])
    for x in (spec.T, spec.U):
        plain = with_targets([0.5, 0.5, 0.5], None)
        assert plain(Output(x, x), spec.labels).item() == pytest.approx(-0.396008, abs=1e-6)
    full = with_targets([0.5, 0.6, 0.7], [1.0, 2.0, 3.0])  # roots of D0 = 1, 4, 9
    assert full(Output(spec.T, spec.T), spec.labels).item() == pytest.approx(-0.2196, abs=5e-5)
    assert full.report()["balance"].item() == pytest.approx(0.2133, abs=5e-5)


@pytest.mark.parametrize("seed", range(6))
def test_equals_loops_with_classes_absent_and_alone(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(14, 4, generator=draw, dtype=torch.float64)
    labels = torch.randint(7, (14,), generator=draw)
    alpha, q = (torch.rand(9, generator=draw).tolist() for _ in range(2))
    value = with_targets(alpha, q)(Output(x, x), labels)
    assert value.item() == pytest.approx(slow(x, labels, alpha, q))


def test_absent_and_lone_classes_have_no_gradient() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    regularizer = with_targets([0.5] * 4, [1.0] * 4)
    regularizer(Output(x, x), torch.tensor([0, 0, 2, 2, 3])).backward()
    assert regularizer.alpha.grad is not None
    assert (regularizer.alpha.grad != 0).tolist() == [True, False, True, False]


def test_the_best_targets_and_the_pull_they_make(spec: SimpleNamespace) -> None:
    """Without the last term alpha = D + 1/2: L = -mean D - 1/4, and each D is pulled with -1/C."""
    spread, _, _ = spreads(spec.T, spec.labels)
    regularizer = with_targets((spread + 0.5).tolist(), None)
    x = spec.T.clone().requires_grad_()
    value = regularizer(Output(x, x), spec.labels)
    value.backward()
    assert value.item() == pytest.approx(-float(spread.mean()) - 0.25)
    assert regularizer.alpha.grad is not None
    torch.testing.assert_close(
        regularizer.alpha.grad, torch.zeros(3, dtype=torch.float64), atol=1e-7, rtol=0
    )
    again = spec.T.clone().requires_grad_()
    (-spreads(F.normalize(again, dim=1), spec.labels)[0].mean()).backward()
    torch.testing.assert_close(x.grad, again.grad, atol=1e-6, rtol=1e-6)


def test_targets_in_proportion_cost_nothing_and_the_best_scale_is_known(
    spec: SimpleNamespace,
) -> None:
    """alpha = t q has no last term; the best t is sum q (D + 1/2) / sum q^2."""
    q = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    spread, _, _ = spreads(spec.T, spec.labels)
    best = float((q * (spread + 0.5)).sum() / q.square().sum())

    def price(scale: float) -> float:
        regularizer = with_targets((scale * q).tolist(), q.tolist())
        value: float = regularizer(Output(spec.T, spec.T), spec.labels).item()
        assert regularizer.report()["balance"].item() == pytest.approx(0.0, abs=1e-6)
        return value

    assert price(best) < min(price(best - 0.01), price(best + 0.01))


def test_unit_vectors_spread_one_minus_the_squared_mean() -> None:
    x = F.normalize(
        torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1
    )
    labels = torch.arange(12) % 3
    spread, _, _ = spreads(x, labels)
    for c in range(3):
        assert float(spread[c]) == pytest.approx(1 - float(x[labels == c].mean(0).square().sum()))


@pytest.mark.parametrize(("count", "fraction"), [(2, 0.5), (5, 0.8), (10, 0.9)])
def test_spread_of_a_few_images_is_too_small_by_the_computed_fraction(
    count: int, fraction: float
) -> None:
    draw = torch.Generator().manual_seed(0)
    classes = 4000
    around = torch.randn(classes * count, 6, generator=draw, dtype=torch.float64) * 0.05
    x = F.normalize(around + torch.eye(6, dtype=torch.float64)[0], dim=1)
    labels = torch.arange(classes * count) % classes
    true = float((x - x.mean(dim=0)).square().sum(dim=1).mean())
    assert float(spreads(x, labels)[0].mean()) / true == pytest.approx(fraction, rel=0.02)
    corrected = with_targets([0.5] * classes, None, unbiased=True)
    corrected(Output(x, x), labels)
    assert corrected.report()["mean_spread"].item() / true == pytest.approx(1.0, rel=0.02)


def test_prepare_takes_the_spread_before_the_embedding() -> None:
    """Relative to the mean over classes, to the power eta; classes of one image count as the
    mean."""
    pooled = torch.tensor([[0.0], [2.0], [0.0], [6.0], [3.0]], dtype=torch.float64)  # D0 1, 9, -
    regularizer = DensityRegularizer(4, eta=0.5)
    assert not regularizer.is_prepared
    regularizer.prepare(pooled, torch.tensor([0, 0, 1, 1, 2]))
    assert regularizer.is_prepared
    assert regularizer.q.tolist() == pytest.approx([0.2**0.5, 1.8**0.5, 1.0, 1.0])
    printed = DensityRegularizer(4, **DensityRegularizer.PRESETS["density"])
    printed.prepare(pooled, torch.tensor([0, 0, 1, 1, 2]))
    assert printed.q.tolist() == pytest.approx([1.0, 3.0, 5**0.5, 5**0.5]), "as it is"
    flat = DensityRegularizer(2)
    flat.prepare(torch.ones(4, 3), torch.tensor([0, 0, 1, 1]))
    assert flat.q.tolist() == [1.0, 1.0], "a network without spread gives no preference"


def test_the_objective_hands_descriptors_on_once() -> None:
    objective = MinedObjective(
        MultiSimilarityLoss(), None, [("density", 10.0, DensityRegularizer(2))]
    )
    assert objective.wants_pooled
    objective.prepare(torch.tensor([[0.0], [2.0], [0.0], [6.0]]), torch.tensor([0, 0, 1, 1]))
    assert not objective.wants_pooled
    first = objective.state_dict()["regularizers.density.q"].tolist()
    assert first == pytest.approx([0.2**0.5, 1.8**0.5])
    objective.prepare(torch.zeros(4, 1), torch.tensor([0, 0, 1, 1]))
    assert objective.state_dict()["regularizers.density.q"].tolist() == first, "not again"
    resumed = MinedObjective(
        MultiSimilarityLoss(), None, [("density", 10.0, DensityRegularizer(2))]
    )
    resumed.load_state_dict(objective.state_dict())
    assert not resumed.wants_pooled, "a checkpoint holds what was prepared"


def test_batch_form_uses_the_descriptors_at_hand_without_gradient(spec: SimpleNamespace) -> None:
    pooled = torch.tensor([[0.0], [2.0], [0.0], [4.0], [0.0], [6.0]]).double().requires_grad_()
    regularizer = DensityRegularizer(3, d0="batch").double()
    assert regularizer.is_prepared
    with torch.no_grad():
        regularizer.alpha.copy_(torch.tensor([0.5, 0.6, 0.7]))
    x = spec.T.clone().requires_grad_()
    value = regularizer(Output(x, pooled), spec.labels)
    value.backward()
    assert value.item() == pytest.approx(-0.2196, abs=5e-5)
    assert pooled.grad is None


def test_floor_cuts_the_value_and_lets_the_target_return(spec: SimpleNamespace) -> None:
    below, at = with_targets([-0.3] * 3, None, floor=True), with_targets([0.0] * 3, None)
    values = [r(Output(spec.T, spec.T), spec.labels) for r in (below, at)]
    torch.testing.assert_close(values[0], values[1])
    values[0].backward()
    assert below.alpha.grad is not None
    assert (below.alpha.grad < 0).all()


def test_report_shows_the_targets(spec: SimpleNamespace) -> None:
    regularizer = with_targets([0.1, 0.9, 0.4], None)
    regularizer(Output(spec.T, spec.T), spec.labels)
    report = regularizer.report()
    result = [report[f"alpha_{which}"].item() for which in ("min", "median", "max")]
    assert result == pytest.approx([0.1, 0.4, 0.9])


def test_targets_learn_at_their_own_rate_without_decay() -> None:
    (group,) = DensityRegularizer(3, lr_factor=50).parameter_groups(1e-4)
    assert (group["lr"], group["weight_decay"]) == (pytest.approx(5e-3), 0.0)


def test_bad_values_and_forgotten_preparation_are_named(spec: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match=r"needs prepare\(pooled, labels\) once before"):
        DensityRegularizer(3).double()(Output(spec.T, spec.T), spec.labels)
    with pytest.raises(ValueError, match="labels must be 0 to 1 with num_classes=2, got 0 to 2"):
        with_targets([0.5] * 2, None)(Output(spec.T, spec.T), spec.labels)
    with pytest.raises(ValueError, match="d0 must be one of initial, relative, batch, none"):
        DensityRegularizer(3, d0="first")
    with pytest.raises(ValueError, match="eta must be a number from 0 on"):
        DensityRegularizer(3, eta=-1)
