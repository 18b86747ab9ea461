"""`descriptor = "orders"`: a run with HORDE evaluated by all its orders."""

from typing import Any

from torch import Tensor

from unseen.config import build
from unseen.config.schema import ResolvedConfig
from unseen.core.contracts import IntArray, Network, Progress
from unseen.models.descriptor import described
from unseen.models.layer_outputs import EMBEDDING
from unseen.models.network import LayeredNetwork
from unseen.runs.batch_source import BatchSource
from unseen.runs.prepare import Callbacks, RunContext
from unseen.training.objective import MinedObjective
from unseen.training.run_folder import RunFolder

ORDERS = "orders"
FILE = "orders.safetensors"


def read_at(
    layer: str, network: LayeredNetwork, config: ResolvedConfig, folder: RunFolder
) -> Network:
    """The trained network of a run at its descriptor."""
    if layer != ORDERS:
        return described(network, layer)
    # its losses, which alone depend on the number of classes, are not asked
    orders = _of(build.objective(config, 1, network), network, config).to(
        config.training.machine.device
    )
    orders.load_own_state(folder.read_tensors(FILE))
    return orders


def embed_at(
    layer: str,
    source: BatchSource,
    network: LayeredNetwork,
    folder: RunFolder,
    items: IntArray,
    progress: Progress | None = None,
) -> Tensor:  # [n, D]
    """Items at the run's descriptor; frozen layers do not run again where a cache holds them."""
    if layer != ORDERS:
        return source.embed(items, progress, layer)
    context = source.context
    _, transform = build.image_transforms(context.config, network)
    return context.embed(
        read_at(layer, network, context.config, folder), transform, items, progress
    )


def while_training(layer: str) -> str:
    """The layer epochs are compared by: components are fitted after the last one."""
    return EMBEDDING if layer == ORDERS else layer


def fit_orders(
    context: RunContext, folder: RunFolder, network: LayeredNetwork, callbacks: Callbacks
) -> None:
    """Fits the components on the training items with the kept weights, and stores them.

    Projectors and order embeddings, which inference by the embedding alone drops, are stored
    with the principal components in orders.safetensors.
    """
    config, train = context.config, context.split.train
    num_classes = len(set(context.training_labels[train].tolist()))
    objective = build.objective(config, num_classes, network)
    folder.fill(objective, "objective.safetensors")
    orders = _of(objective, network, config).to(context.device)
    _, transform = build.image_transforms(config, network)
    progress = callbacks.of("orders of the training images")
    orders.fit(context.embed(orders, transform, train, progress).to(context.device))
    folder.write_tensors(FILE, orders.own_state())


def _of(objective: MinedObjective, network: LayeredNetwork, config: ResolvedConfig) -> Any:
    """An `OrdersDescriptor`, which only the regularizer knows."""
    horde: Any = objective.regularizers["horde"]
    return horde.descriptor(network, config.model.embedding_size)
