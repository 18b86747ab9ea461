"""A network divided at its freeze point: a frozen prefix that runs once, and a trainable rest."""

import hashlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from unseen.core.contracts import FrozenLayers, Output
from unseen.models.folding import folded
from unseen.models.layer_outputs import EMBEDDING, POOLED, check_names, hook
from unseen.models.network import EmbeddingNetwork, Hookable, LayeredNetwork, portions

LARGE = 0.8  # of all weights: a layer that holds more is no place but a network of its own


class Split(NamedTuple):
    """`rest(frozen(images))` is what the network gives; both share its layers."""

    frozen: "FrozenBackbone"
    rest: "Rest"


class FrozenBackbone(FrozenLayers):
    """Images to the activation at the freeze point; never trained, never in training mode."""

    def __init__(self, layers: nn.Module, layer: str) -> None:
        super().__init__()
        self.layers, self.layer = layers, layer
        self.eval()

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        result = self.layers(images.contiguous(memory_format=torch.channels_last))
        activation: Tensor = (
            result[0] if isinstance(result, tuple) else result
        )  # a backbone pools, too
        return activation

    def run(self, images: Tensor) -> Tensor:
        images = images.to(next(self.parameters()).device)
        return torch.cat([self(chunk) for chunk in portions(images)])

    def faster(self, images: Tensor) -> "FrozenBackbone":
        """With batch norms folded into convolutions."""
        return folded(self, images.to(next(self.parameters()).device))

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.layer}\n{self.layers}".encode())
        for name, tensor in sorted(self.layers.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:32]


class Rest(Hookable):
    """Activations at the freeze point to an Output: the trainable part of a network."""

    def __init__(
        self, network: LayeredNetwork, layers: nn.Module | None, frozen: FrozenBackbone
    ) -> None:
        super().__init__()
        self.network, self.layer = network, frozen.layer
        self.embedding_size = network.embedding_size
        self._shared = (layers, frozen)  # in a tuple: what is shared must not be registered twice

    def forward(self, activations: Tensor) -> Output:
        layers, _ = self._shared
        if layers is not None:
            return self.network.finish(layers(activations))
        assert isinstance(self.network, EmbeddingNetwork)
        return self.network.from_pooled(activations)

    def layers(self) -> list[str]:
        """The names of the layers after the freeze point."""
        before = set(self._shared[1].modules())
        named = self.network.named_layers()
        early = {n for n, layer in named.items() if not before.isdisjoint(layer.modules())}
        return [name for name in self.network.layers() if name not in early]

    def layer_outputs(
        self, activations: Tensor, names: Sequence[str], pooling: str = "max"
    ) -> dict[str, Tensor]:
        """Unit descriptors of layers after the freeze point; others need the whole network."""
        check_names(names, self.network.layers())
        known = self.layers()
        early = [name for name in names if name not in known]
        if early:
            raise ValueError(
                f"{', '.join(early)} come before the freeze point {self.layer}: read them "
                "from images, with the whole network"
            )

        def run() -> dict[str, Tensor]:
            output = self(activations)
            return {POOLED: output.pooled, EMBEDDING: output.embeddings}

        return hook(
            run,
            self.network.named_layers(),
            names,
            num_images=len(activations),
            pooling=pooling,
            places=self.network.backbone.places,
        )


def split_network(network: LayeredNetwork, layer: str) -> Split:
    """Freezes everything up to `layer`: no gradients, evaluation mode for ever.

    `freeze_until = "<layer>"` freezes everything up to and including that layer. Only one tensor
    may cross the freeze point, the layer's output: inside a residual block the shortcut would cross
    as well, so blocks freeze as a whole. "pooled" is the last possible one; then only the head is
    trained.

    The forward pass is read with torch.fx, which looks inside only those modules that contain the
    layer; all others stay whole, so any network can be divided whose outer structure does not
    depend on values. The same reading finds the layers through which everything passes.
    """
    backbone = network.backbone
    if layer == POOLED and isinstance(network, EmbeddingNetwork):
        backbone.freeze([backbone.body, backbone.pooling], list(backbone.parameters()))
        frozen = FrozenBackbone(backbone, layer)
        return Split(frozen, Rest(network, None, frozen))
    if backbone.mirror:
        raise ValueError(
            f"cannot freeze until {layer}: with mirror = true only pooled descriptors are the "
            f"mean of both images; freeze until {POOLED}"
        )
    check_names([layer], [*(name for name, _ in backbone.body.named_modules() if name), POOLED])
    leading, method = network.leading_layers()
    if layer not in dict(leading.named_modules()):
        raise ValueError(f"cannot freeze until {layer}: the masks of the ensemble act before it")
    before, after = split_body(leading, method, layer)
    shared = {id(p) for p in before.parameters()} & {id(p) for p in after.parameters()}
    if shared:
        raise ValueError(f"cannot freeze until {layer}: {len(shared)} parameters are on both sides")
    modules = [module for module in before.modules() if module is not before]
    backbone.freeze(modules, list(before.parameters()))
    frozen = FrozenBackbone(before, layer)
    return Split(frozen, Rest(network, after, frozen))


def split_body(body: nn.Module, method: str, layer: str) -> tuple[fx.GraphModule, fx.GraphModule]:
    """What runs up to and including a layer, and what runs after; both share the layers."""
    graph = _graph(body, method, layer)
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target == layer]
    if len(calls) != 1:
        raise ValueError(
            f"cannot freeze until {layer}: it runs {len(calls)} times in a forward pass"
        )
    _check_only_way(graph, calls[0], layer)
    return _piece(body, graph, None, calls[0]), _piece(body, graph, calls[0], _result(graph))


def passages(network: LayeredNetwork) -> list[str]:
    """Layers through whose output everything passes, in order, with weights between one and the
    next and after the last. Blocks stay whole, but one that holds most of the weights is looked
    into. Empty where the network cannot be read."""
    body, method = network.leading_layers()
    opened: list[str] = []
    result: list[str] = []
    while True:
        try:
            graph, is_same = _traced(body, method, opened)
        except Exception:  # whatever a forward pass makes of a stand-in for its tensor
            return result
        if not is_same:
            return result
        every = list(_passages(body, graph))
        is_whole = body is network.backbone.body  # otherwise more weights follow
        result = [name for name, is_last in every if not (is_last and is_whole)]
        blocks = [name for name, _ in every if list(body.get_submodule(name).children())]
        most = LARGE * _num_weights(body)
        large = [name for name in blocks if _num_weights(body.get_submodule(name)) > most]
        if not large:
            return result
        opened += large


def _passages(body: nn.Module, graph: fx.Graph) -> Iterator[tuple[str, bool]]:
    """The only ways of a graph that have weights between them, and whether none come after."""
    calls = [node for node in graph.nodes if node.op == "call_module"]
    times = Counter(node.target for node in calls)
    has_weights = [_num_weights(body.get_submodule(str(node.target))) > 0 for node in calls]
    start = 0
    for place, node in enumerate(calls):
        is_new = any(has_weights[start : place + 1])
        if is_new and times[node.target] == 1 and _is_only_way(graph, node):
            yield str(node.target), not any(has_weights[place + 1 :])
            start = place + 1


def _num_weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class _Opener(fx.Tracer):
    """Looks inside the named modules only."""

    def __init__(self, opened: Sequence[str], method: str) -> None:
        super().__init__()
        self.opened, self.traced_func_name = opened, method

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self.opened


def _graph(body: nn.Module, method: str, layer: str) -> fx.Graph:
    """The forward pass; outside its layers it must be the same in training and evaluation."""
    parts = layer.split(".")
    around = [".".join(parts[:i]) for i in range(1, len(parts))]
    advice = f"freeze until {' or '.join([*around[-1:], POOLED])} instead"
    try:
        graph, is_same = _traced(body, method, around)
    except Exception as error:  # whatever a forward pass makes of a stand-in for its tensor
        reason = str(error).splitlines()[0]
        raise ValueError(f"cannot freeze until {layer}: {reason}; {advice}") from error
    if not is_same:
        raise ValueError(
            f"cannot freeze until {layer}: the layers around it run otherwise in training; {advice}"
        )
    return graph


def _traced(body: nn.Module, method: str, opened: Sequence[str]) -> tuple[fx.Graph, bool]:
    """The forward pass in training, with a look into some modules, and whether it is the same in
    evaluation: constants, which are numbered as they are met, by their values."""
    around = [body, *(body.get_submodule(name) for name in opened)]
    before, graphs = [module.training for module in around], []
    try:
        for mode in (True, False):
            for module in around:
                module.training = mode
            graphs.append(_Opener(opened, method).trace(body, _defaults(body, method)))
    finally:
        for module, was in zip(around, before, strict=True):
            module.training = was
    constant = re.compile(r"_tensor_constant\d+")
    texts = [constant.sub(lambda m: str(getattr(body, m[0]).tolist()), str(g)) for g in graphs]
    return graphs[0], texts[0] == texts[1]


def _defaults(body: nn.Module, method: str) -> dict[str, Any]:
    """What a forward pass takes beside the images stays at its default."""
    parameters = inspect.signature(getattr(body, method)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _check_only_way(graph: fx.Graph, point: fx.Node, layer: str) -> None:
    """Nothing that depends on the images may reach the result but through the freeze point."""
    if _is_only_way(graph, point):
        return
    if point not in _leading_to(_result(graph), stop=None):
        raise ValueError(f"cannot freeze until {layer}: the embedding does not depend on it")
    reached, after = _leading_to(_result(graph), stop=point), _following(point)
    images = {n for node in graph.nodes if node.op == "placeholder" for n in _following(node)}
    crossing = [
        node
        for node in graph.nodes
        if node in reached and node in images and node not in after
        if any(user in after for user in node.users)
    ]
    names = ", ".join(str(node.target) for node in crossing if node is not point) or "the images"
    outer = layer.rpartition(".")[0] or POOLED
    raise ValueError(
        f"cannot freeze until {layer}: not only its output is needed after it, but {names}; "
        f"freeze until the end of the block instead, e.g. {outer}"
    )


def _is_only_way(graph: fx.Graph, point: fx.Node) -> bool:
    is_needed = point in _leading_to(_result(graph), stop=None)
    reached = _leading_to(_result(graph), stop=point)
    return is_needed and not any(node.op == "placeholder" for node in reached)


def _leading_to(end: fx.Node, stop: fx.Node | None) -> set[fx.Node]:
    """The node and all it is made of, without looking behind `stop`."""
    result: set[fx.Node] = set()
    waiting = [end]
    while waiting:
        node = waiting.pop()
        if node not in result and node is not stop:
            result.add(node)
            waiting += node.all_input_nodes
    return result


def _following(start: fx.Node) -> set[fx.Node]:
    """The node and all that depends on it."""
    result: set[fx.Node] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in result:
            result.add(node)
            waiting += list(node.users)
    return result


def _result(graph: fx.Graph) -> fx.Node:
    return next(node for node in reversed(graph.nodes) if node.op == "output").all_input_nodes[0]


def _piece(body: nn.Module, graph: fx.Graph, start: fx.Node | None, end: fx.Node) -> fx.GraphModule:
    """The part of a graph from the output of `start` (None: the images) to that of `end`."""
    needed = _leading_to(end, stop=start)
    piece = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    if start is not None:
        copied[start] = piece.placeholder("activations")
    for node in graph.nodes:
        if node in needed:
            copied[node] = piece.node_copy(node, lambda n: copied[n])
    piece.output(copied[end])
    return fx.GraphModule(body, piece)
