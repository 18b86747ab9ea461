import math

import pytest
import torch

from unseen.neighbors.space import make_space, precise, to_sphere


def test_unit_rows_at_any_scale() -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for scale in (1e-30, 1e-6, 1.0, 1e30):
        torch.testing.assert_close(to_sphere(x * scale), to_sphere(x))
    assert torch.equal(to_sphere(torch.zeros(1, 4)), torch.zeros(1, 4))


@pytest.mark.parametrize("normalize", [True, False])
def test_the_product_is_the_similarity(normalize: bool) -> None:
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)) * 3 + 5
    space = make_space(x, normalize=normalize)
    every = torch.arange(40)
    exact = space.exact(every, every.expand(40, 40)) * space.grid
    product = (space.left @ space.right.T).double()
    assert (product - exact).abs().max() < space.tolerance / 2
    torch.testing.assert_close(space.exact_rows(every) * space.grid, exact, atol=1e-9, rtol=1e-9)
    if not normalize:
        expected = -torch.cdist(x.double(), x.double()).square()
        torch.testing.assert_close(exact, expected, atol=1e-4, rtol=1e-6)


def test_far_from_the_origin() -> None:
    """Distances do not drown in large norms."""
    x = torch.tensor([[0.0], [1.0], [3.0]]) + 4096
    space = make_space(x, normalize=False)
    expected = -torch.tensor([[0.0, 1, 9], [1, 0, 4], [9, 4, 0]])
    torch.testing.assert_close(space.left @ space.right.T, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_refuses_what_is_not_finite(bad: float) -> None:
    x = torch.ones(4, 3)
    x[2, 1] = bad
    with pytest.raises(
        ValueError, match=r"^embeddings: 1 of 4 rows hold NaN or infinity \(rows 2\)"
    ):
        make_space(x)
    with pytest.raises(ValueError, match="gallery_embeddings: 1 of 4"):
        make_space(torch.ones(2, 3), x)


def test_refuses_wrong_shapes() -> None:
    with pytest.raises(ValueError, match="matrix"):
        make_space(torch.ones(3))
    with pytest.raises(ValueError, match="floating point"):
        make_space(torch.ones(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="columns"):
        make_space(torch.ones(3, 2), torch.ones(3, 4))


def test_precision_settings_are_left_as_they_were() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with precise(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.is_grad_enabled()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_half_precision_is_raised() -> None:
    x = torch.randn(4, 3).to(torch.bfloat16)
    assert make_space(x).left.dtype == torch.float32
    assert make_space(x.double()).left.dtype == torch.float64
