"""`descriptor = "orders"`: a run with HORDE judged by all its orders, in the embedding's size.

The projectors and order embeddings, which inference by the embedding alone drops, are then stored
with the principal components in `orders.safetensors`.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from unseen import assemble
from unseen.config import SettledConfig
from unseen.contracts import IntArray, Network, Progress
from unseen.experiment.run_context import RunContext, Watch
from unseen.experiment.source import Source
from unseen.networks.descriptor import described
from unseen.networks.network import LayeredNetwork
from unseen.networks.taps import EMBEDDING
from unseen.objective import MinedObjective
from unseen.training.run_folder import RunFolder

ORDERS = "orders"
FILE = "orders.safetensors"


def read_at(
    layer: str, network: LayeredNetwork, config: SettledConfig, folder: RunFolder
) -> Network:
    """The trained network of a run at its descriptor."""
    if layer != ORDERS:
        return described(network, layer)
    # its losses, which alone depend on the number of classes, are not asked
    orders = _of(assemble.objective(config, 1, network), network, config).to(config.device)
    orders.load_own_state(folder.read_tensors(FILE))
    return orders


def embed_at(
    layer: str,
    source: Source,
    network: LayeredNetwork,
    folder: RunFolder,
    items: IntArray,
    progress: Progress | None = None,
) -> Tensor:  # [n, D]
    """Items at the run's descriptor; frozen layers do not run again where a cache holds them."""
    if layer != ORDERS:
        return source.embed(items, progress, layer)
    context = source.context
    _, transform = assemble.picture_transforms(context.config, network)
    return context.embed(
        read_at(layer, network, context.config, folder), transform, items, progress
    )


def while_training(layer: str) -> str:
    """The layer epochs are compared by: components are fitted after the last one."""
    return EMBEDDING if layer == ORDERS else layer


def fit_orders(
    context: RunContext, folder: RunFolder, network: LayeredNetwork, watch: Watch
) -> Path:
    """Fits the components on the training items with the kept weights, and stores them."""
    config, train = context.config, context.split.train
    num_classes = len(set(context.training_labels[train].tolist()))
    objective = assemble.objective(config, num_classes, network)
    folder.fill(objective, "objective.safetensors")
    orders = _of(objective, network, config).to(context.device)
    _, transform = assemble.picture_transforms(config, network)
    progress = watch.of("orders of the training pictures")
    orders.fit(context.embed(orders, transform, train, progress).to(context.device))
    folder.write_tensors(FILE, orders.own_state())
    return folder.file(FILE)


def _of(objective: MinedObjective, network: LayeredNetwork, config: SettledConfig) -> Any:
    """An `OrdersDescriptor`, which only the regularizer knows."""
    horde: Any = objective.regularizers["horde"]
    return horde.descriptor(network, config.embedding_size)
