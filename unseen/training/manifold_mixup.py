"""Manifold mixup: a step that mixes activations of two pictures somewhere on the way.

Paper    V. Verma et al., Manifold Mixup: Better Representations by Interpolating Hidden States,
         ICML 2019, https://arxiv.org/abs/1806.05236; for metric learning in the supplement of K.
         Roth et al., Revisiting Training Strategies, ICML 2020, https://arxiv.org/abs/2002.08473
Formula  per batch a share s from Beta(2, 2), a permutation and a layer; there h becomes
         s h + (1 - s) h[permutation]. Then, y being the labels,

             L = s objective(output, y) + (1 - s) objective(output, y[permutation])

         each with its own mined tuples; where both labels agree the weights add up to 1.
Values   Beta(2, 2); layers: the input and the body's children up to the last but one (our choice).
Use      a control: it compresses the space more and lowers recall. Pass it to the trainer in place
         of its plain step. Draws depend on seed and step alone, so a resumed run repeats them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

INPUT = "input"


class ManifoldMixup:
    """layers: `input` or names of modules of the network; None: chosen as the docstring says."""

    def __init__(
        self, layers: Sequence[str] | None = None, concentration: float = 2.0, seed: int = 0
    ) -> None:
        if concentration <= 0:
            raise ValueError(f"concentration must be above 0, got {concentration}")
        if layers is not None and not layers:
            raise ValueError("layers must name at least one layer, or be None")
        self.layers, self.concentration, self.seed = layers, concentration, seed

    def __call__(
        self, network: nn.Module, objective: nn.Module, images: Tensor, labels: Tensor, step: int
    ) -> dict[str, Tensor]:
        """The objective's terms, mixed; `mixup` is the share of the first pictures."""
        generator = np.random.default_rng([self.seed, step])
        share = float(generator.beta(self.concentration, self.concentration))
        partner = torch.from_numpy(generator.permutation(len(images))).to(images.device)
        layer = str(generator.choice(self._layers(network)))
        return mixed_terms(network, objective, images, labels, share, partner, layer)

    def _layers(self, network: nn.Module) -> list[str]:
        modules = dict(network.named_modules())
        if self.layers is None:
            return [INPUT, *early_layers(network)]
        unknown = [name for name in self.layers if name != INPUT and name not in modules]
        if unknown:
            raise ValueError(
                f"the network has no layer named {', '.join(unknown)}: "
                f"choose from {', '.join([INPUT, *early_layers(network)])} or any module's name"
            )
        return list(self.layers)


def early_layers(network: Any) -> list[str]:
    """The children of the network's body that have parameters, but for the last."""
    children = network.backbone.body.named_children()
    named = [name for name, child in children if any(True for _ in child.parameters())]
    return [f"backbone.body.{name}" for name in named[:-1]]


def mixed_terms(
    network: nn.Module,
    objective: nn.Module,
    images: Tensor,
    labels: Tensor,
    share: float,
    partner: Tensor,  # [N] whom each picture is mixed with
    layer: str,
) -> dict[str, Tensor]:
    """One step's terms, given what is drawn."""

    def mix(x: Tensor) -> Tensor:
        return share * x + (1 - share) * x[partner]

    if layer == INPUT:
        output = network(mix(images))
    else:
        module = network.get_submodule(layer)
        hook = module.register_forward_hook(lambda module, inputs, output: mix(output))
        try:
            output = network(images)
        finally:
            hook.remove()
    own, other = objective(output, labels), objective(output, labels[partner])
    terms = {name: share * own[name] + (1 - share) * other[name] for name in own}
    return terms | {"mixup": torch.tensor(share)}
