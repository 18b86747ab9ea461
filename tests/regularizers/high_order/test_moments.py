"""Moments by projection: the Random Maclaurin metadata, cascade and blocks."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unseen.regularizers.high_order.moments import Moments


def make(
    channels: int,
    dimension: int,
    orders: int,
    *,
    cascade: bool = False,
    trained: bool = False,
    columns: int | None = None,
    seed: int = 0,
) -> Moments:
    generator = torch.Generator().manual_seed(seed)
    return Moments(channels, dimension, orders, cascade, trained, None, columns, generator)


def at_cosine(cosine: float, channels: int) -> Tensor:  # two 1 x 1 maps
    x, y = torch.zeros(2, channels)
    x[0], y[0], y[1] = 1.0, cosine, (1 - cosine**2) ** 0.5
    turn = torch.linalg.qr(
        torch.randn(channels, channels, generator=torch.Generator().manual_seed(0))
    ).Q
    return (torch.stack([x, y]) @ turn)[:, :, None, None]


@pytest.mark.parametrize(
    ("order", "dimension", "expected", "deviation"),
    [
        (2, 8192, 0.640, 0.009),
        (3, 8192, 0.512, 0.016),
        (5, 8192, 0.328, 0.043),
        (5, 1024, 0.328, 0.107),
    ],
)
def test_cosine_of_moments_is_a_power_of_the_cosine(
    order: int, dimension: int, expected: float, deviation: float
) -> None:
    """64 channels, cosine 0.8: mean and spread over draws of the projectors, as computed."""
    maps, result = at_cosine(0.8, 64), []
    for seed in range(12):
        first, second = make(64, dimension, order, cascade=True, seed=seed)(maps)[order - 2]
        result.append(float(F.cosine_similarity(first, second, dim=0)))
    values = torch.tensor(result)
    assert abs(float(values.mean()) - expected) < 4 * deviation / 12**0.5 + 0.02 * (order == 5)
    assert deviation / 2.5 < float(values.std()) < deviation * 2


@pytest.mark.parametrize("cascade", [True, False])
def test_signs_on_one_hot_vectors_are_exact(cascade: bool) -> None:
    """x with one entry t: phi_k . phi_k / d = t^2k."""
    maps = torch.zeros(1, 5, 1, 1, dtype=torch.float64)
    maps[0, 2] = 1.5
    for order, (moment,) in enumerate(make(5, 32, 4, cascade=cascade)(maps), start=2):
        assert float(moment @ moment) / 32 == pytest.approx(1.5 ** (2 * order))


def test_sizes_of_moments_are_as_computed() -> None:
    """ReLU-like vectors of norm 23 in 1024 channels: signs give 23^k, Glorot 0.34, 0.11, 0.039
    ..."""
    x = torch.randn(8, 1024, generator=torch.Generator().manual_seed(0)).relu()
    maps = (23 * F.normalize(x, dim=1))[:, :, None, None]
    signs = make(1024, 512, 5, cascade=True)(maps)
    for result, expected in zip(signs, (516, 1.2e4, 2.6e5, 6.3e6), strict=True):
        assert float(result.square().mean().sqrt()) == pytest.approx(expected, rel=0.25)
    glorot = make(1024, 8192, 2, cascade=True, trained=True)(maps)
    assert float(glorot[0].detach().square().mean().sqrt()) == pytest.approx(0.11, rel=0.1)


def test_cascade_and_independent_agree_at_order_two() -> None:
    one, two = make(4, 8, 2, cascade=True), make(4, 8, 2)
    two.load_state_dict(one.state_dict())
    maps = torch.randn(3, 4, 2, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one(maps), two(maps))


@pytest.mark.parametrize("cascade", [True, False])
def test_moments_are_means_over_the_places(cascade: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(3, 4, 2, 2, generator=generator, dtype=torch.float64)
    moments = make(4, 8, 4, cascade=cascade)
    single = [moments(maps[:, :, i : i + 1, j : j + 1]) for i in range(2) for j in range(2)]
    torch.testing.assert_close(moments(maps), torch.stack(single).mean(dim=0))


@pytest.mark.parametrize("cascade", [True, False])
def test_places_have_no_order(cascade: bool) -> None:
    maps = torch.randn(3, 4, 2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = maps.flatten(2)[
        :, :, torch.randperm(10, generator=torch.Generator().manual_seed(0))
    ].view(3, 4, 5, 2)
    moments = make(4, 8, 4, cascade=cascade)
    torch.testing.assert_close(moments(maps), moments(moved))


@pytest.mark.parametrize("cascade", [True, False])
def test_blocks_of_columns_give_the_same_values_and_gradients(cascade: bool) -> None:
    results = []
    for columns in (None, 3, 8):
        maps = torch.randn(3, 4, 2, 2, generator=torch.Generator().manual_seed(1)).double()
        maps.requires_grad_()
        moments = make(4, 8, 4, cascade=cascade, trained=True, columns=columns).double()
        value = moments(maps)
        value.square().sum().backward()
        results.append((value.detach(), maps.grad, moments.projectors.grad))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            torch.testing.assert_close(one, two)


def test_blocks_keep_less_for_the_backward_pass() -> None:
    """Of a block only its result stays: num_orders - 1 numbers per image and dimension."""

    def kept(columns: int | None) -> int:
        sizes: list[int] = []

        def pack(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        moments = make(4, 64, 5, cascade=True, trained=True, columns=columns)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            moments(torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(0)))
        return sum(sizes)

    assert kept(16) < kept(None) / 3


def test_start_of_trained_projectors_is_glorot() -> None:
    projectors = make(30, 90, 3, cascade=True, trained=True).projectors.detach()
    bound = (6 / 120) ** 0.5
    assert float(projectors.abs().max()) <= bound
    assert float(projectors.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
    fixed = make(30, 90, 3).projectors
    assert set(fixed.unique().tolist()) == {-1.0, 1.0}
