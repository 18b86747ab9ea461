"""A network read at one of its layers: the descriptor that is evaluated, searched and exported.

Paper    N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
         Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310: trained on one layer, the
         layer before it often serves unseen classes better.
Rule     `embedding` is the network itself, with its raw embeddings; any other layer is a tap
         (`taps.py`), a unit vector.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unseen.core.contracts import Network, Output
from unseen.models.backbone import Backbone
from unseen.models.layer_outputs import EMBEDDING, POOLED, check_names, hooked
from unseen.models.network import EmbeddingNetwork, Hookable, LayeredNetwork

_BETWEEN = (  # layers that only hand on what the one before them computed
    nn.Dropout,
    nn.Dropout2d,
    nn.Identity,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
)


class Described(Network):
    """A network, or the rest of one after its freeze point, whose embeddings are another of its
    layers; it shares the network."""

    def __init__(self, network: Hookable, layer: str) -> None:
        super().__init__()
        check_names([layer], network.layers())
        self.network, self.layer = network, layer
        if isinstance(network, LayeredNetwork):
            self.embedding_size = self._size(network.backbone)  # and whether the layer runs at all

    def _size(self, backbone: Backbone) -> int:
        was_training = self.network.training
        size = backbone.input_spec.size  # 0: the data are features
        shape = (1, 3, size, size) if size else (1, backbone.num_features)
        blank = torch.zeros(shape, device=next(self.parameters()).device)
        with torch.inference_mode():
            result: Tensor = self.eval()(blank).embeddings
        self.train(was_training)
        return result.shape[1]

    def forward(self, images: Tensor) -> Output:
        outputs: list[Output] = []
        with hooked({"": self.network}, lambda name, output: outputs.append(output)):
            descriptors = self.network.layer_outputs(images, [self.layer])
        return Output(descriptors[self.layer], outputs[-1].pooled)


class Shortened(Network):
    """A network whose embeddings are the first `size` values of another's, which it shares."""

    def __init__(self, network: Network, size: int) -> None:
        super().__init__()
        self.network, self.embedding_size = network, size

    def forward(self, images: Tensor) -> Output:
        output: Output = self.network(images)
        return Output(output.embeddings[:, : self.embedding_size], output.pooled)


def described(network: LayeredNetwork, layer: str) -> Network:
    """The network at a layer: its `embeddings` are that layer's descriptors."""
    return network if layer == EMBEDDING else Described(network, layer)


def usual_layers(network: LayeredNetwork, images: Tensor) -> list[str]:
    """The layers worth comparing, in the order they run: blocks and activations of the body (a
    Sequential counts by its steps), `pooled`, the head's hidden layers, `embedding`."""
    named = network.named_layers()
    ran: list[str] = []

    def keep(name: str, output: object) -> None:
        if isinstance(output, Tensor) and name not in ran:
            ran.append(name)

    was_training = network.training
    plain = isinstance(network, EmbeddingNetwork)  # what its own pooling runs gives `pooled`
    with torch.inference_mode(), hooked({n: named[n] for n in _steps(network.backbone.body)}, keep):
        network.eval()
        network.backbone.features(images) if plain else network(images)
    network.train(was_training)
    hidden = [name for name, layer in named.items() if _is_hidden(name, layer)]
    return [*ran, POOLED, *hidden[:-1], EMBEDDING]


class Layer(NamedTuple):
    """What a layer gives for one image, and how many values its descriptor has."""

    shape: tuple[int, ...]
    size: int


@torch.inference_mode()
def layers_of(network: LayeredNetwork, images: Tensor) -> dict[str, Layer]:
    """Every layer that can be a descriptor, in the order they ran, `pooled` before the head."""
    shapes: dict[str, tuple[int, ...]] = {}

    def keep(name: str, output: object) -> None:
        if isinstance(output, Tensor):
            shapes.pop(name, None)
            shapes[name] = tuple(output.shape[1:])

    was_training = network.training
    with hooked(network.named_layers(), keep):
        output = network.eval()(images)
    head = {name: shapes.pop(name) for name in list(shapes) if name.startswith("head.")}
    shapes |= {POOLED: tuple(output.pooled.shape[1:])} | head
    shapes |= {EMBEDDING: (network.embedding_size,)}
    layer_outputs = network.layer_outputs(images, list(shapes))
    network.train(was_training)
    return {name: Layer(shape, layer_outputs[name].shape[1]) for name, shape in shapes.items()}


def _is_hidden(name: str, layer: nn.Module) -> bool:
    return name.startswith("head.") and isinstance(layer, nn.Linear)


def _steps(body: nn.Module, prefix: str = "") -> Iterator[str]:
    """Blocks and activations; a convolution or norm alone is half of a step."""
    for name, layer in body.named_children():
        if isinstance(layer, nn.Sequential | nn.ModuleList):
            yield from _steps(layer, f"{prefix}{name}.")
        elif _is_block(layer) or _is_activation(layer):
            yield f"{prefix}{name}"


def _is_block(layer: nn.Module) -> bool:
    return any(True for _ in layer.children()) and not parametrize.is_parametrized(layer)


def _is_activation(layer: nn.Module) -> bool:
    return not list(layer.parameters()) and not isinstance(layer, _BETWEEN)
