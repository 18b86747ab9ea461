"""LoRA: pretrained layers stay, and each learns a small matrix of low rank beside it."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unseen.core.names import advice
from unseen.models.backbone import Backbone
from unseen.models.frozen_batch_norm import batch_norms


class LowRank(nn.Module):
    """A weight to itself plus (alpha / rank) B A."""

    scale: Tensor  # alpha / rank: stored beside A and B, so that these say all of a layer

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        num_outputs, num_inputs = weight.shape[:2]
        self.A = nn.Parameter(weight.new_empty(rank, num_inputs))
        self.B = nn.Parameter(weight.new_empty(num_outputs, rank))
        self.register_buffer("scale", torch.tensor(alpha / rank, dtype=weight.dtype))
        self.reset()

    def reset(self) -> None:
        """New starting values, which change nothing."""
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        nn.init.zeros_(self.B)

    def forward(self, weight: Tensor) -> Tensor:  # [out, in] or [out, in, 1, 1]
        return weight + self.scale * (self.B @ self.A).view_as(weight)


def adapt(
    backbone: Backbone,
    rank: int = 8,
    alpha: float = 8.0,
    layers: Sequence[str] = (),
    frozen: Collection[nn.Module] = (),
) -> list[str]:
    """Freezes a backbone's body but for the adapters it gets; returns the names of their layers.
    layers: names, or parts of names between dots; none: all. frozen: layers that stay frozen.

    Paper:
        E. Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022,
        https://arxiv.org/abs/2106.09685

    Formula:
        a layer W [out, in] gives

            W x + (alpha / rank) B A x,    A [rank, in], B [out, rank]

        W and all else of the body is frozen: biases, tokens, normalisation with its statistics.
        B starts at 0, so the adapted network starts as the one it was adapters of. Here the sum
        W + (alpha / rank) B A is formed once a pass and the layer runs with it: the same number,
        also where a network reads the layer's weight without calling it, and what is exported
        (`merge`) is the very layer that was trained.

    Values:
        rank 8. alpha 8, as in peft: the paper leaves alpha at the first rank tried, so that
        another rank needs no other learning rate. A is drawn uniformly as in the authors' code
        (Kaiming, a = sqrt 5); the paper says Gaussian. No dropout: the formula has none.

    Layers:
        every linear layer and every 1x1 convolution without groups behind the freeze point
        (`freeze_until`), or those that `layers` names: "attn", "blocks.11", "qkv". timm keeps
        query, key and value in one linear layer, `qkv`: it is adapted as one, with one A for the
        three; the paper has a pair for query and for value. nn.MultiheadAttention hides its own
        in a bare parameter: of it only `out_proj` is reached.

    Count:
        rank * (in + out) per layer.

    Use:
        large pretrained transformers, or networks of 1x1 convolutions, on few images.
    """
    chosen = adaptable(backbone.body, layers, frozen)
    pretrained = list(backbone.body.parameters())
    hang(chosen.values(), rank, alpha)
    backbone.freeze(list(batch_norms(backbone.body)), pretrained)
    return list(chosen)


def hang(layers: Iterable[nn.Module], rank: int, alpha: float) -> list[LowRank]:
    """Puts new matrices beside layers, and returns them."""
    adapters = []
    for layer in layers:
        weight = layer.weight
        assert isinstance(weight, Tensor), "layers that can be adapted have one"
        adapters.append(LowRank(weight, rank, alpha))
        parametrize.register_parametrization(layer, "weight", adapters[-1])
    return adapters


def adaptable(
    module: nn.Module, layers: Sequence[str] = (), frozen: Collection[nn.Module] = ()
) -> dict[str, nn.Module]:
    """The layers inside a module that can be adapted, by their names, as `adapt` chooses them."""
    before = set(frozen)
    result = {n: m for n, m in module.named_modules() if is_adaptable(m) and m not in before}
    for words in layers:
        if not any(_is_in(words, name) for name in result):
            known = sorted({word for name in result for word in [name, *name.split(".")]})
            raise ValueError(f"no layer to adapt is named {words!r}: {advice(words, known)}")
    chosen = {
        n: m for n, m in result.items() if not layers or any(_is_in(words, n) for words in layers)
    }
    if not chosen:
        raise ValueError(
            "adapter=lora changes linear layers and 1x1 convolutions, and there are none to train: "
            "choose another backbone, or freeze fewer layers (freeze_until)"
        )
    return chosen


def is_adaptable(layer: nn.Module) -> bool:
    """Whether a layer is one matrix: linear, or a convolution of single places and all channels."""
    if isinstance(layer, nn.Conv2d):
        return layer.kernel_size == (1, 1) and layer.groups == 1
    return isinstance(layer, nn.Linear)


def merge(network: nn.Module) -> None:
    """Adds what the adapters learned to the weights they stand beside: plain layers are left."""
    every: list[Any] = [m for m in network.modules() if parametrize.is_parametrized(m, "weight")]
    for layer in every:
        if isinstance(layer.parametrizations.weight[-1], LowRank):
            merged = nn.Parameter(layer.weight.detach(), requires_grad=False)
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
            layer.weight = merged  # a new one: another layer may share the old


def _is_in(words: str, name: str) -> bool:
    """Whether a name has these words between its dots: blocks.1 is in blocks.1.attn, not in
    blocks.11."""
    return f".{words}." in f".{name}."
