"""Manifold mixup: a step that mixes activations of two images somewhere on the way."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unseen.models.freezing import passages, split_body
from unseen.models.layer_outputs import check_names
from unseen.models.network import LayeredNetwork

INPUT = "input"


class ManifoldMixup:
    """Manifold mixup: a step that mixes activations of two images somewhere on the way.

    layers: `input`, or names of layers of the network's body; None: chosen as the docstring
    says.

    Paper:
        V. Verma et al., Manifold Mixup: Better Representations by Interpolating Hidden States,
        ICML 2019, https://arxiv.org/abs/1806.05236; for metric learning in the supplement of K.
        Roth et al., Revisiting Training Strategies, ICML 2020, https://arxiv.org/abs/2002.08473

    Formula:
        per batch a share s from Beta(2, 2), a permutation and a layer; there h becomes
        s h + (1 - s) h[permutation]. Then, y being the labels,

            L = s objective(output, y) + (1 - s) objective(output, y[permutation])

        each with its own mined tuples; where both labels agree the weights add up to 1.

    Values:
        Beta(2, 2); places: the input, and every layer of the body through which all that is known
        of an image passes, but for the last (`passages` of `models/freezing.py`; our choice): a
        layer inside a branch would leave the others unmixed under mixed labels. In an ensemble
        these are the layers up to where its masks act.

    Use:
        a control: it compresses the space more and lowers recall (the supplement calls stronger
        decay a lower rho; as defined it is a higher one). Pass it to the trainer in place of its
        plain step. Draws depend on seed and step alone, so a resumed run repeats them. Samplers
        that remember embeddings are told those of the images themselves.
    """

    def __init__(
        self,
        network: LayeredNetwork,
        layers: Sequence[str] | None = None,
        concentration: float = 2.0,
        seed: int = 0,
    ) -> None:
        if concentration <= 0:
            raise ValueError(f"concentration must be above 0, got {concentration}")
        if layers is not None and not layers:
            raise ValueError("layers must name at least one layer, or be None")
        self.network, self.concentration, self.seed = network, concentration, seed
        self.layers = usual_places(network) if layers is None else checked(network, layers)

    def __call__(
        self, objective: nn.Module, images: Tensor, labels: Tensor, step: int
    ) -> dict[str, Tensor]:
        """The objective's terms, mixed; `mixup` is the share of the first images."""
        generator = np.random.default_rng([self.seed, step])
        fraction = float(generator.beta(self.concentration, self.concentration))
        partner = torch.from_numpy(generator.permutation(len(images))).to(images.device)
        layer = str(generator.choice(self.layers))
        return mixed_terms(self.network, objective, images, labels, fraction, partner, layer)


def usual_places(network: LayeredNetwork) -> list[str]:
    """The input and the layers everything passes through."""
    result = passages(network)
    if not result:
        raise ValueError(
            "manifold_mixup finds no layer that everything passes through: name some with "
            'manifold_mixup.layers, ["input"] mixes the images alone'
        )
    return [INPUT, *result]


def checked(network: LayeredNetwork, layers: Sequence[str]) -> list[str]:
    """The layers as given; one that does not mix everything is refused."""
    body, method = network.leading_layers()
    try:
        check_names(layers, [INPUT, *(name for name, _ in body.named_modules() if name)])
        for layer in layers:
            if layer != INPUT:
                split_body(body, method, layer)
    except ValueError as error:
        raise ValueError(f"manifold_mixup.layers: {error}") from error
    return list(layers)


def mixed_terms(
    network: Any,
    objective: nn.Module,
    images: Tensor,
    labels: Tensor,
    fraction: float,
    partner: Tensor,  # [N] whom each image is mixed with
    layer: str,
) -> dict[str, Tensor]:
    """One step's terms, given what is drawn."""

    def mix(x: Tensor) -> Tensor:
        return fraction * x + (1 - fraction) * x[partner]

    if layer == INPUT:
        output = network(mix(images))
    else:
        module = network.backbone.body.get_submodule(layer)
        hook = module.register_forward_hook(lambda module, inputs, output: mix(output))
        try:
            output = network(images)
        finally:
            hook.remove()
    own, other = objective(output, labels), objective(output, labels[partner])
    terms = {name: fraction * own[name] + (1 - fraction) * other[name] for name in own}
    return terms | {"mixup": torch.tensor(fraction)}
