"""Formulas with their gradient written out, which torch may still differentiate again or transform.

A written gradient takes fewer operations than the one torch finds, and at batches of some hundred
items an operation costs more to start than to compute. Such a function is said twice:

    formula(*inputs)   in plain operations: what second derivatives and torch.func see
    written(*inputs)   the same value, and `back`: the gradient of each input from the value's

`back` may be called several times: it changes nothing it keeps.
"""

from __future__ import annotations  # so that torch.compile sees through inner functions

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Back = Callable[[Tensor], tuple[Any, ...]]  # a tensor for each input, or None
Written = Callable[..., tuple[Any, Back]]  # the value: a tensor, or several; see differentiable


def is_transformed() -> bool:
    """Whether torch.func or torch.compile looks on, which see through plain operations only."""
    return torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling()


def differentiable(formula: Callable[..., Any], written: Written, *inputs: Tensor) -> Any:
    """The value at the inputs. Where it is several tensors only the first one has a gradient."""
    if is_transformed():
        return formula(*inputs)
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        return written(*inputs)[0]
    return _Differentiable.apply(formula, written, *inputs)  # type: ignore[no-untyped-call]


def chain(*steps: Written) -> Written:
    """Functions of one tensor after each other as one."""

    def written(x: Tensor) -> tuple[Tensor, Back]:
        backs = []
        for step in steps:
            x, back = step(x)
            backs.append(back)

        def back_through_all(grad: Tensor) -> tuple[Tensor]:
            for back in reversed(backs):
                (grad,) = back(grad)
            return (grad,)

        return x, back_through_all

    return written


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, formula: Callable[..., Any], written: Written, *inputs: Tensor) -> Any:
        value, ctx.back = written(*inputs)
        ctx.formula = formula
        ctx.save_for_backward(*inputs)
        # detached: `back` may keep the value, and a value that keeps its own graph is never freed
        if isinstance(value, Tensor):
            return value.detach()
        ctx.mark_non_differentiable(*value[1:])
        return value[0].detach(), *value[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors  # raises where they were freed, or changed in place since
        if torch.is_grad_enabled():  # the gradient is to be differentiated too
            return None, None, *_gradients(ctx.formula, inputs, grad)
        return None, None, *ctx.back(grad)


def _gradients(
    formula: Callable[..., Any], inputs: tuple[Tensor, ...], grad: Tensor
) -> list[Tensor | None]:
    # one input may be made from another: each counts by itself here
    apart = [x.view_as(x) for x in inputs]
    value = formula(*apart)
    value = value if isinstance(value, Tensor) else value[0]
    request = [x for x in apart if x.requires_grad]
    result = iter(
        torch.autograd.grad(value, request, grad, create_graph=True, materialize_grads=True)
    )
    return [next(result) if x.requires_grad else None for x in apart]
