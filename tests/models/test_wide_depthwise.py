"""Wide depthwise convolutions: the gradients of their definition, made of narrow ones."""

import pytest
import torch
from torch.nn import functional as F

from unseen.models.wide_depthwise import convolve, is_wide

SHAPES = [  # height and width of kernel and image, stride, padding
    ((5, 5), (6, 7), (1, 1), (2, 2)),
    ((5, 5), (5, 5), (1, 1), (2, 2)),
    ((5, 5), (9, 11), (2, 2), (0, 0)),
    ((5, 5), (8, 8), (2, 2), (2, 2)),
    ((7, 7), (6, 5), (1, 1), (3, 3)),
    ((3, 4), (7, 8), (1, 3), (1, 2)),
    ((4, 9), (4, 9), (1, 1), (0, 0)),
    ((7, 7), (2, 2), (1, 1), (3, 3)),
]


def tensors(kernel, image):
    generator = torch.Generator().manual_seed(0)
    sizes = [(2, 3, *image), (3, 1, *kernel), (3,)]
    return [
        torch.randn(size, dtype=torch.float64, generator=generator).requires_grad_()
        for size in sizes
    ]


def by_definition(grad, x, size, stride, padding):
    """Loops over taps and outputs."""
    result = torch.zeros(x.shape[1], 1, *size, dtype=x.dtype)
    (_, _, rows, columns), (height, width) = grad.shape, x.shape[2:]
    for u in range(size[0]):
        for v in range(size[1]):
            for i in range(rows):
                for j in range(columns):
                    row = stride[0] * i + u - padding[0]
                    column = stride[1] * j + v - padding[1]
                    if 0 <= row < height and 0 <= column < width:
                        result[:, 0, u, v] += (grad[:, :, i, j] * x[:, :, row, column]).sum(0)
    return result


@pytest.mark.parametrize(("size", "image", "stride", "padding"), SHAPES)
def test_the_kernel_gradient_is_that_of_the_definition(size, image, stride, padding):
    x, kernel, bias = tensors(size, image)
    output = convolve(x, kernel, bias, stride, padding)
    torch.testing.assert_close(output, F.conv2d(x, kernel, bias, stride, padding, groups=3))
    grad = torch.randn(
        output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    output.backward(grad)
    expected = by_definition(grad, x.detach(), size, stride, padding)
    torch.testing.assert_close(kernel.grad, expected)


@pytest.mark.parametrize(("size", "image", "stride", "padding"), SHAPES[:3])
def test_every_gradient(size, image, stride, padding):
    run, given = lambda *given: convolve(*given, stride, padding), tensors(size, image)
    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given)


def test_channels_last_in_float32_as_it_is_trained():
    x, kernel, bias = (t.detach().float() for t in tensors((5, 5), (10, 10)))
    x = x.contiguous(memory_format=torch.channels_last)
    gradients = []
    for run in (convolve, lambda *given: F.conv2d(*given, groups=3)):
        weight = kernel.clone().requires_grad_()
        run(x, weight, bias, (1, 1), (2, 2)).square().sum().backward()
        gradients.append(weight.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)


def test_only_where_it_is_faster():
    x, kernel, _ = tensors((5, 5), (6, 7))
    assert is_wide(x, kernel, 3)
    assert not is_wide(x, kernel[..., :3], 3), "narrow"
    assert not is_wide(x, kernel.detach(), 3), "not trained"
    assert not is_wide(x, torch.randn(6, 1, 5, 5, requires_grad=True), 3), "two kernels a channel"
    with torch.no_grad():
        assert not is_wide(x, kernel, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_wide(x, kernel, 3)
