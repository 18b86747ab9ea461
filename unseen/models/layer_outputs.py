"""Any layer as a descriptor: hook it, pool it over places, put it on the unit sphere."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from unseen.core.geometry import full_precision, unit
from unseen.core.names import advice
from unseen.models.pooling import create_pooling

POOLED, EMBEDDING = "pooled", "embedding"  # the two descriptors every network has
Keep = Callable[[str, Any], None]
Places = Callable[[str, Tensor], Tensor]


def hook(
    run: Callable[[], Mapping[str, Tensor]],
    modules: Mapping[str, nn.Module],
    names: Sequence[str],
    *,
    num_images: int,
    pooling: str = "max",
    places: Places = lambda name, output: output,
) -> dict[str, Tensor]:
    """Unit descriptors [N, d] of named layers. `run` makes a forward pass and returns what else
    has a name (`pooled`, `embedding`). places: what a layer gives, of places alone."""
    pool = create_pooling(pooling)
    seen: dict[str, Tensor] = {}

    def keep(name: str, output: Any) -> None:
        """At once: the next layer may overwrite its input."""
        if not isinstance(output, Tensor):
            raise ValueError(f"layer {name!r} gives no tensor and cannot be a descriptor")
        seen[name] = _flat(places(name, output), pool).reshape(num_images, -1)

    with hooked({name: modules[name] for name in names if name in modules}, keep):
        seen |= run()
    silent = [name for name in names if name not in seen]
    if silent:
        raise ValueError(f"layers that do not run in a forward pass: {', '.join(silent)}")
    return {name: unit(full_precision(seen[name])) for name in names}


def layer_outputs(
    network: Any,
    images: Tensor,
    names: Sequence[str],
    pooling: str = "max",
) -> dict[str, Tensor]:
    """Unit descriptors [N, d] of named layers of a network, from one forward pass.

    Paper:
        N. Vo, J. Hays, Generalization in Metric Learning: Should the Embedding Layer be the
        Embedding Layer?, WACV 2019, https://arxiv.org/abs/1803.03310: the layer before the loss
        often generalises better.

    Rule:
        a map [N, C, H, W] counts by its maximum over places (or its mean, or GeM), tokens [N, T,
        C] by the mean of those of patches, a vector as it is. A layer that runs several times
        counts with its last run.
    """
    check_names(names, network.layers())

    def run() -> Mapping[str, Tensor]:
        output = network(images)
        return {POOLED: output.pooled, EMBEDDING: output.embeddings}

    layers = network.named_layers()
    return hook(
        run,
        layers,
        names,
        num_images=images.shape[0],  # not len: a traced batch has no fixed size
        pooling=pooling,
        places=network.backbone.places,
    )


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Unknown layers name their nearest."""
    for name in names:
        if name not in known:
            raise ValueError(f"no layer named {name!r}: {advice(name, known)}")


def inner_layers(module: nn.Module) -> dict[str, nn.Module]:
    """The layers inside a module by their names; what an adapter hangs into one is none."""
    result = module.named_modules()
    return {name: layer for name, layer in result if name and "parametrizations" not in name}


@contextmanager
def hooked(modules: Mapping[str, nn.Module], keep: Keep) -> Iterator[None]:
    """Tells `keep` the output of every module while it runs."""

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, inputs, output: keep(name, output)

    handles = [module.register_forward_hook(hook(name)) for name, module in modules.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _flat(activation: Tensor, pool: nn.Module) -> Tensor:  # [N, d]
    if activation.ndim == 4:
        pooled: Tensor = pool(activation)
        return pooled
    if activation.ndim == 3:
        return activation.mean(dim=1)
    return activation
