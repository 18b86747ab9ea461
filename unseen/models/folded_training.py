"""Batch norms that stay as they are, folded into the convolutions that are trained."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import unseen.core.torchvision_operators  # noqa: F401 - before timm, which imports torchvision

# isort: split
from timm.layers import Conv2dSame, pad_same

from unseen.models.folding import are_same, neighbors
from unseen.models.wide_depthwise import convolve, is_wide


class FoldedConvolution(nn.Conv2d):
    """W is trained and stored, W' is run."""

    norm: tuple[nn.BatchNorm2d]  # in a tuple: it is registered at its own place already

    def forward(self, input: Tensor) -> Tensor:
        (norm,) = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        bias = -norm.running_mean if self.bias is None else self.bias - norm.running_mean
        weight = self.weight * scale[:, None, None, None]
        bias = torch.addcmul(norm.bias, bias, scale)
        around, stride = self.padding, self.stride
        plain = self.padding_mode == "zeros" and self.dilation == (1, 1)
        if plain and isinstance(around, tuple) and is_wide(input, weight, self.groups):
            return convolve(input, weight, bias, stride, around)
        return self._conv_forward(input, weight, bias)


class FoldedSameConvolution(FoldedConvolution):
    """timm's with padding as in TensorFlow: more to the right and below."""

    def forward(self, input: Tensor) -> Tensor:
        kernel, stride, dilation = map(list, (self.kernel_size, self.stride, self.dilation))
        return super().forward(pad_same(input, kernel, stride, dilation))


class FoldedNorm(nn.BatchNorm2d):
    """Holds the values; the convolution before it has applied them. timm's carry an activation."""

    def forward(self, input: Tensor) -> Tensor:
        for child in self.children():
            in_place = isinstance(child, nn.ReLU6) and child.inplace and input.requires_grad
            input = _Clamped.apply(input) if in_place else child(input)
        return input


class _Clamped(torch.autograd.Function):
    """ReLU6 in place. PyTorch's keeps a copy of its input for the backward pass; between 0 and 6 is
    where the output is, too, and that the next layer keeps anyhow."""

    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:
        output = input.clamp_(0, 6)
        ctx.mark_dirty(output)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (output,) = ctx.saved_tensors
        within: Tensor = torch.ops.aten.hardtanh_backward(grad, output, 0.0, 6.0)
        return within


@torch.no_grad()
def fold_in_training(network: nn.Module, run: Callable[[Tensor], Tensor], probe: Tensor) -> None:
    """Folds the batch norms below `network`, which are to stay as they are for ever; `run` is its
    forward pass, `probe` a typical input.

    W is trained and stored, W' of `folding.py` is formed in every pass: the gradient is that of the
    two layers, and no norm reads or writes a map.
    """
    kinds = {nn.Conv2d: FoldedConvolution, Conv2dSame: FoldedSameConvolution}
    was_training = network.training
    network.eval()
    before, changed = run(probe), list[tuple[nn.Module, type[nn.Module]]]()
    for names in neighbors(network, probe, run):
        convolution, norm = map(network.get_submodule, names)
        if type(convolution) in kinds and isinstance(norm, nn.BatchNorm2d):
            changed += [(convolution, type(convolution)), (norm, type(norm))]
            convolution.__class__, norm.__class__ = kinds[type(convolution)], FoldedNorm
            convolution.norm = (norm,)  # type: ignore[assignment]
    if not are_same(before, run(probe)):
        for module, kind in changed:
            module.__class__ = kind
            vars(module).pop("norm", None)
    network.train(was_training)
