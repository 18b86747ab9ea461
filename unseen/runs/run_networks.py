"""The networks of a run: before its first step, as stored, and at its descriptor, which may be all
orders of HORDE (`descriptor = "orders"`)."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from unseen.config import build
from unseen.config.schema import ResolvedConfig
from unseen.config.stages import FIRST, stage_config
from unseen.core import custom_components
from unseen.core.contracts import IntArray, Network, Progress
from unseen.evaluation.training_gain import UNTRAINED, Start
from unseen.models.backbone import FEATURES, IMAGENET
from unseen.models.descriptor import described
from unseen.models.layer_outputs import EMBEDDING, POOLED
from unseen.models.network import EmbeddingNetwork, LayeredNetwork
from unseen.runs.batch_source import BatchSource
from unseen.runs.prepare import Callbacks, RunContext, config_at_start
from unseen.training.objective import MinedObjective
from unseen.training.run_folder import SELECTED, RunFolder
from unseen.training.selected_weights import FILE as SELECTION
from unseen.training.selected_weights import Selection, read_selection

ORDERS, ORDERS_FILE = "orders", "orders.safetensors"
START_FILE = "start.safetensors"


def selected_context(context: RunContext, selection: Selection) -> RunContext:
    """The run with the config of the stage it has kept."""
    if selection.stages is None:
        return context
    return replace(context, config=stage_config(context.config, selection.stages.selected))


def start_of_selected(context: RunContext, folder: RunFolder) -> tuple[RunContext, RunFolder]:
    """The run as the training of its kept network began, and where that start is kept: on the first
    of the stages that led to it."""
    config = config_at_start(folder)
    if not config.training.stages:
        return context, folder
    stages = read_selection(folder).stages if folder.holds(SELECTION) else None
    name = stages.chain[0].name if stages is not None and stages.chain else FIRST
    return replace(context, config=stage_config(config, name)), stage_folder(folder, name)


def stage_folder(root: RunFolder, name: str) -> RunFolder:
    return root if name == FIRST else RunFolder(root.file(f"stages/{name}"), root.processes)


def stored_network(
    context: RunContext, folder: RunFolder, name: str = SELECTED[0]
) -> LayeredNetwork:
    """The network a run has kept."""
    if not folder.has(name):
        raise ValueError(
            f"{folder.path} has no weights yet: it was stopped before its first epoch ended"
        )
    network = build.network(context.config).to(context.device)
    folder.fill(network, name)
    return network


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
    orders.load_own_state(folder.read_tensors(ORDERS_FILE))
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
    folder.write_tensors(ORDERS_FILE, orders.own_state())


def _of(objective: MinedObjective, network: LayeredNetwork, config: ResolvedConfig) -> Any:
    """An `OrdersDescriptor`, which only the regularizer knows."""
    horde: Any = objective.regularizers["horde"]
    return horde.descriptor(network, config.model.embedding_size)


def start_of(config: ResolvedConfig) -> Start:
    """The network before its first step, called what it is."""
    if config.model.backbone.startswith(FEATURES):
        return Start("head at its start", "features")
    if config.model.weights is None:
        return Start(UNTRAINED, "random")
    weights = "given weights"
    if config.model.weights == IMAGENET:  # timm's may have learned from other images
        weights = (
            "pretrained weights"
            if config.model.backbone.startswith("timm:")
            else "ImageNet weights"
        )
    title = f"{weights}, head at its start"
    return Start(title, "frozen" if config.model.frozen.freeze_until == POOLED else "pretrained")


def start_head(context: RunContext, network: LayeredNetwork, pooled: Tensor) -> None:
    """Puts the principal directions of pooled descriptors into the head, in all processes."""
    assert isinstance(network, EmbeddingNetwork), "other networks have no head to choose"
    network.head.start_from(pooled.to(context.device))
    network.head.load_state_dict(context.processes.agreed(network.head.state_dict))


def saves_start(config: ResolvedConfig) -> bool:
    """Whether the start is kept: config and seed do not give it back."""
    return config.model.starts_principal or custom_components.is_object(config.model.network)


def save_start(folder: RunFolder, network: LayeredNetwork, config: ResolvedConfig) -> None:
    """Stores the start. The evaluation compares with the network that training began with: a head
    that came from the data (`head.start = "principal"`) and a network passed as an object are
    not given back by the seed."""
    folder.write_tensors(START_FILE, _saved_module(network, config).state_dict())


def load_start(folder: RunFolder, network: LayeredNetwork, config: ResolvedConfig) -> None:
    """Puts the kept values into a fresh network, where there are some."""
    if saves_start(config):
        folder.fill(_saved_module(network, config), START_FILE)


def _saved_module(network: LayeredNetwork, config: ResolvedConfig) -> nn.Module:
    if custom_components.is_object(config.model.network):
        return network
    assert isinstance(network, EmbeddingNetwork)
    return network.head
