import copy
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from unseen.losses.quadruplet import QuadrupletLoss
from unseen.losses.triplet import TripletLoss


def distance(u: Tensor, v: Tensor) -> float:
    return (u / u.norm() - v / v.norm()).norm().item()


def slow(case, margin: float, fourth_margin: float) -> float:
    rows, columns = case.y.tolist(), case.column_labels
    total = 0.0
    for a, p, n in case.triplets:
        near = distance(case.x[a], case.columns[p]) if case.rx is not None or a != p else 0.0
        total += max(0.0, near - distance(case.x[a], case.columns[n]) + margin)
        fourths = [
            max(0.0, near - distance(case.columns[n], case.columns[l]) + fourth_margin)
            for l in range(len(columns))  # noqa: E741
            if columns[l] not in (rows[a], columns[n])
        ]
        total += sum(fourths) / max(1, len(fourths))
    return total / len(case.triplets)


@pytest.mark.parametrize("margins", [(1.0, 0.5), (0.2, 0.2), (0.3, 0.9)], ids=str)
def test_equals_a_loop(case, margins) -> None:
    assert case(QuadrupletLoss(*margins)).item() == pytest.approx(slow(case, *margins), abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype, monkeypatch) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4
    drawn = torch.tensor([4, 5, 4, 0, 0, 2])[:, None]
    monkeypatch.setattr("unseen.losses.quadruplet.draw_per_row", lambda *_: drawn)
    for preset, expected in (("revisit_code", 0.140061), ("revisit", 0.861357)):
        loss = QuadrupletLoss(**QuadrupletLoss.PRESETS[preset], fourth="random")
        result = loss(spec.T.to(dtype), spec.labels, spec.TR).item()
        assert result == pytest.approx(expected, abs=close)
    collapsed = QuadrupletLoss()(spec.COL.to(dtype), spec.labels, spec.TR).item()
    assert collapsed == pytest.approx(1.5, abs=10 * close)


def test_drawing_comes_to_the_average_over_all(cases) -> None:
    for case in cases[1:6:3]:
        drawing = QuadrupletLoss(0.5, 0.8, fourth="random", seed=3)
        drawn = torch.stack([case(drawing) for _ in range(400)])
        assert drawn.std() > 0
        error = 5 * drawn.std().item() / 20
        assert drawn.mean().item() == pytest.approx(
            case(QuadrupletLoss(0.5, 0.8)).item(), abs=error
        )


def test_the_draw_is_seeded_and_resumes(cases) -> None:
    first, second = (QuadrupletLoss(fourth="random", seed=1) for _ in range(2))
    assert cases[1](first) == cases[1](second)
    state = copy.deepcopy(first.state_dict())
    further = [cases[1](first) for _ in range(3)]
    fresh = QuadrupletLoss(fourth="random", seed=9)
    fresh.load_state_dict(state)
    assert [cases[1](fresh) for _ in range(3)] == further


def test_is_a_triplet_loss_without_a_third_class(spec: SimpleNamespace) -> None:
    x, y = spec.T[:4], spec.labels[:4]
    expected = TripletLoss(1.0, "euclidean")(x, y).item()
    for fourth in ("all", "random"):
        assert QuadrupletLoss(fourth=fourth)(x, y).item() == pytest.approx(expected, abs=1e-12)
    assert QuadrupletLoss()(spec.T, spec.labels) >= TripletLoss(1.0, "euclidean")(
        spec.T, spec.labels
    )


@pytest.mark.parametrize("fourth", ["all", "random"])
def test_many_blocks_equal_one(monkeypatch: pytest.MonkeyPatch, cases, fourth: str) -> None:
    if fourth == "random":  # one choice, whatever the blocks: the first allowed
        first = lambda allowed, _: allowed.int().argmax(dim=1, keepdim=True)  # noqa: E731
        monkeypatch.setattr("unseen.losses.quadruplet.draw_per_row", first)
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        whole = case(QuadrupletLoss(fourth=fourth), x)
        (gradient,) = torch.autograd.grad(whole, x)
        with monkeypatch.context() as patch:
            patch.setattr("unseen.losses.quadruplet.BLOCK", 40)
            parts = case(QuadrupletLoss(fourth=fourth), x)
            assert parts.item() == pytest.approx(whole.item(), abs=1e-12)
            torch.testing.assert_close(torch.autograd.grad(parts, x)[0], gradient)


def test_gradient(cases) -> None:
    for case in cases[:6]:
        x = case.x.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda x, c=case: c(QuadrupletLoss(0.3, 0.9), x), (x,))


@pytest.mark.parametrize("values", [{"margin": -1.0}, {"fourth_margin": -1.0}, {"fourth": "hard"}])
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        QuadrupletLoss(**values)
