import math
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.reducers import MeanReducer

from unseen.losses.smooth_triplet import SmoothTripletLoss

VARIANTS = [
    {},
    {"scale": 1.5},
    {"normalize": False, "scale": 0.5},
    SmoothTripletLoss.PRESETS["vo_hays"],
]


def slow(case, scale=4.0, normalize=True, factor=1.0, **_) -> float:
    terms = []
    for a, p, n in case.triplets:
        vectors = [case.x[a], case.columns[p], case.columns[n]]
        if normalize:
            vectors = [v / v.norm() for v in vectors]
        anchor, positive, negative = vectors
        gap = (anchor - positive).square().sum() - (anchor - negative).square().sum()
        exponent = scale**2 * gap.item()
        terms.append(max(0.0, exponent) + math.log1p(math.exp(-abs(exponent))))
    return factor * sum(terms) / len(terms)


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_equals_a_loop(case, values) -> None:
    assert case(SmoothTripletLoss(**values)).item() == pytest.approx(slow(case, **values), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_numbers_of_the_sources(spec: SimpleNamespace, dtype: torch.dtype) -> None:
    close = 1e-5 if dtype == torch.float64 else 1e-4

    def of(x, **values) -> float:
        return SmoothTripletLoss(**values)(x.to(dtype), spec.labels).item()

    assert of(spec.T) == pytest.approx(0.430194, abs=close)
    assert of(spec.T, scale=1.0) == pytest.approx(0.224448, abs=close)
    assert of(spec.T, scale=1.0, normalize=False) == pytest.approx(0.224448, abs=close)
    assert of(spec.COL) == pytest.approx(math.log(2), abs=close)
    assert of(spec.ORT, scale=1.0) == pytest.approx(0.126928, abs=close)
    assert of(spec.T, **SmoothTripletLoss.PRESETS["vo_hays"]) == pytest.approx(
        0.430194 / 2, abs=close
    )


def test_equals_the_peer(cases) -> None:
    x, y = cases[0].x, cases[0].y
    raw = LpDistance(power=2, normalize_embeddings=False)
    peer = pml.TripletMarginLoss(margin=0, smooth_loss=True, distance=raw, reducer=MeanReducer())
    ours = SmoothTripletLoss(scale=1.0, normalize=False)
    assert ours(x, y).item() == pytest.approx(peer(x, y).item(), abs=1e-6)


def test_the_scale_is_learnt_with_its_own_rate_and_decay() -> None:
    assert not SmoothTripletLoss().scale.requires_grad
    loss = SmoothTripletLoss(**SmoothTripletLoss.PRESETS["vo_hays"])
    (group,) = loss.parameter_groups(1e-3)
    assert (group["lr"], group["weight_decay"]) == (0.01, 5e-5)
    assert group["params"][0] is loss.scale


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_gradient_of_embeddings_and_scale(cases, values) -> None:
    for case in cases[:6:2]:
        loss = SmoothTripletLoss(**values | {"learn_scale": True}).double()
        x = case.x.clone().requires_grad_()

        def priced(x, scale, case=case, loss=loss):
            return torch.func.functional_call(
                loss, {"scale": scale}, (x, case.y, case.tuples, case.rx, case.ry)
            )

        assert torch.autograd.gradcheck(priced, (x, loss.scale))


@pytest.mark.parametrize(
    "values", [{"scale": 0.0}, {"factor": -1.0}, {"lr": -1.0}, {"weight_decay": -1.0}]
)
def test_bad_values(values) -> None:
    (name,) = values
    with pytest.raises(ValueError, match=name):
        SmoothTripletLoss(**values)
