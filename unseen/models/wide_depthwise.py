"""Depthwise convolution with a wide kernel, as it is best trained on a CPU."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Pair = tuple[int, ...]  # of rows, of columns
NARROW = 3  # columns at a time


def is_wide(input: Tensor, kernel: Tensor, groups: int) -> bool:
    """Whether training this convolution here is faster by `convolve`."""
    trains = torch.is_grad_enabled() and kernel.requires_grad
    depthwise = groups == len(kernel) == input.shape[1] and kernel.shape[3] > NARROW
    plain = input.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return trains and depthwise and plain and not torch.compiler.is_compiling()


def convolve(input: Tensor, kernel: Tensor, bias: Tensor, stride: Pair, padding: Pair) -> Tensor:
    """`conv2d` of each channel with its own kernel [C, 1, H, W].

    oneDNN's gradient of a depthwise kernel is ten times slower where that is wider than three (5 x
    5, 672 maps of 10 x 10, 16 images, one core: 11.2 ms; the forward pass takes 0.9, the gradient
    of the input 1.4). Here it is made of the gradients of narrow kernels: 3.2 ms.

    Formula:
        dW[c, u, v] = sum over n, i, j of  g[n, c, i, j] * x[n, c, s i + u - p, s j + v - p]
        with stride s and padding p: columns v of a kernel know nothing of each other, so that some
        of them are the gradient of a kernel of their own over an x that begins at the first.
    """
    convolved: Tensor = _Depthwise.apply(input, kernel, bias, stride, padding)
    return convolved


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        kernel: Tensor,
        bias: Tensor,
        stride: Pair,
        padding: Pair,
    ) -> Tensor:
        ctx.save_for_backward(input, kernel)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(input, kernel, bias, stride, padding, groups=len(kernel))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        input, kernel = ctx.saved_tensors
        of_input = of_kernel = of_bias = None
        if ctx.needs_input_grad[0]:
            wanted = (True, False, False)
            of_input = _backward(grad, input, kernel, ctx.stride, ctx.padding, wanted)[0]
        if ctx.needs_input_grad[1]:
            of_kernel = _kernel_gradient(grad, input, kernel, ctx.stride, ctx.padding)
        if ctx.needs_input_grad[2]:
            of_bias = grad.sum((0, 2, 3))
        return of_input, of_kernel, of_bias, None, None


def _kernel_gradient(
    grad: Tensor, input: Tensor, kernel: Tensor, stride: Pair, padding: Pair
) -> Tensor:
    result, width, reach = [], input.shape[3], stride[1] * (grad.shape[3] - 1)
    for first in range(0, kernel.shape[3], NARROW):
        columns = kernel[..., first : first + NARROW]
        before = padding[1] - first  # columns of zeros before the input; negative: it begins later
        if width + before <= 0:  # beyond its end
            result.append(torch.zeros_like(columns))
            continue
        after = reach + columns.shape[3] - before - width
        moved = F.pad(input, (before, after))
        wanted = (False, True, False)
        result.append(_backward(grad, moved, columns, stride, (padding[0], 0), wanted)[1])
    return torch.cat(result, dim=3)


def _backward(
    grad: Tensor,
    input: Tensor,
    kernel: Tensor,
    stride: Pair,
    padding: Pair,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Of input, kernel and bias, as wanted."""
    fixed = (None, stride, padding, (1, 1), False, (0, 0), len(kernel))
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        grad, input, kernel, *fixed, wanted
    )
    return gradients
