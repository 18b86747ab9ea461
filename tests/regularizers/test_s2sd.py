"""S2SD: its price against loops, what teaches whom, when the features join."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.core.contracts import Output
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.losses.proxy_nca import ProxyNcaLoss
from unseen.regularizers.s2sd import S2sdRegularizer

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def make(**given: Any) -> S2sdRegularizer:
    values = {"num_features": 5, "sizes": [4, 7], "delay": 0}
    return S2sdRegularizer(lambda size: MultiSimilarityLoss(), None, **(values | given)).double()


def output(seed: int = 0) -> Output:
    draw = torch.Generator().manual_seed(seed)
    return Output(*(torch.randn(6, d, generator=draw, dtype=torch.float64) for d in (3, 5)))


def cosines(rows: Tensor) -> list[list[float]]:
    return [[float(a @ b / (a.norm() * b.norm())) for b in rows] for a in rows]


def softmax(values: list[float], temperature: float) -> list[float]:
    raised = [math.exp(value / temperature) for value in values]
    return [value / sum(raised) for value in raised]


def slow_divergence(student: Tensor, teacher: Tensor, temperature: float) -> float:
    total = 0.0
    for learned, taught in zip(cosines(student), cosines(teacher), strict=True):
        p, q = softmax(learned, temperature), softmax(taught, temperature)
        total += sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
    return temperature**2 * total / len(student)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_price_equals_loops(temperature: float) -> None:
    part, out = make(temperature=temperature, feature_distillation=3.0), output()
    teachers = [teacher(out.pooled).detach() for teacher in part.teachers]
    losses = [float(MultiSimilarityLoss()(rows, LABELS)) for rows in teachers]
    divergences = [slow_divergence(out.embeddings, rows, temperature) for rows in teachers]
    features = slow_divergence(out.embeddings, out.pooled, temperature)
    expected = sum(losses) / 2 + 2 * 50 * sum(divergences) / 2 + 2 * 3 * features
    assert part(out, LABELS).item() == pytest.approx(expected, rel=1e-9)


def test_teachers_do_not_learn_from_the_student() -> None:
    part, out = make(feature_distillation=0.0), output()
    part(out, LABELS).backward()
    taught = [p.grad.clone() for p in part.teachers.parameters() if p.grad is not None]
    alone = make(feature_distillation=0.0, distillation=0.0)
    alone.load_state_dict(part.state_dict())
    alone(out, LABELS).backward()
    own = [p.grad for p in alone.teachers.parameters()]
    for one, two in zip(taught, own, strict=True):
        torch.testing.assert_close(one, two)


def test_gradcheck_of_what_is_not_detached() -> None:
    """The student's side of the divergence, and the teachers' losses."""
    part, out = make(), output(3)
    student = out.embeddings.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: part(Output(z, out.pooled), LABELS), student)
    alone, pooled = make(distillation=0.0, feature_distillation=0.0), out.pooled.clone()
    price = lambda p: alone(Output(out.embeddings, p), LABELS)  # noqa: E731
    assert torch.autograd.gradcheck(price, pooled.requires_grad_())


def test_features_join_after_the_delay_and_the_count_is_kept() -> None:
    part, out = make(delay=2), output()
    early = [part(out, LABELS).item() for _ in range(2)]
    late = part(out, LABELS).item()
    assert early[0] == early[1] < late
    again = make(delay=2)
    again.load_state_dict(part.state_dict())
    assert again(out, LABELS).item() == late


def test_a_student_like_its_teachers_has_nothing_to_learn() -> None:
    out = output()
    same = Output(out.pooled, out.pooled)
    part = make(distillation=0.0)
    assert part(same, LABELS).item() == pytest.approx(part.report()["loss"].item())


def test_each_teacher_has_parameters_of_its_own() -> None:
    part = S2sdRegularizer(lambda size: ProxyNcaLoss(3, size), None, 5, sizes=[4, 7])
    shapes = [tuple(p.shape) for p in part.losses.parameters()]
    assert shapes == [(3, 4), (3, 7)]


def test_other_descriptors_and_bad_values_are_refused() -> None:
    out = output()
    with pytest.raises(ValueError, match="made for pooled descriptors of 5 values, got 3"):
        make()(Output(out.embeddings, out.embeddings), LABELS)
    with pytest.raises(ValueError, match="sizes"):
        make(sizes=[])
    with pytest.raises(ValueError, match="temperature"):
        make(temperature=0.0)
