"""The network before its first step: its name, and its values where a seed does not give them."""

from torch import Tensor, nn

from unseen.config.schema import ResolvedConfig
from unseen.core import custom_components
from unseen.evaluation.training_gain import UNTRAINED, Start
from unseen.models.backbone import FEATURES, IMAGENET
from unseen.models.layer_outputs import POOLED
from unseen.models.network import EmbeddingNetwork, LayeredNetwork
from unseen.runs.prepare import RunContext
from unseen.training.run_folder import RunFolder

FILE = "start.safetensors"


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


def starts_head(config: ResolvedConfig) -> bool:
    """Whether the head begins with the principal directions of the training items."""
    return config.model.starts_principal


def start_head(context: RunContext, network: LayeredNetwork, pooled: Tensor) -> None:
    """Puts the principal directions of pooled descriptors into the head, in all processes."""
    assert isinstance(network, EmbeddingNetwork), "other networks have no head to choose"
    network.head.start_from(pooled.to(context.device))
    network.head.load_state_dict(context.processes.agreed(network.head.state_dict))


def saves_start(config: ResolvedConfig) -> bool:
    """Whether the start is kept: config and seed do not give it back."""
    return starts_head(config) or custom_components.is_object(config.model.network)


def save_start(folder: RunFolder, network: LayeredNetwork, config: ResolvedConfig) -> None:
    """Stores the start. The evaluation compares with the network that training began with: a head
    that came from the data (`head.start = "principal"`) and a network passed as an object are
    not given back by the seed."""
    folder.write_tensors(FILE, _saved_module(network, config).state_dict())


def load_start(folder: RunFolder, network: LayeredNetwork, config: ResolvedConfig) -> None:
    """Puts the kept values into a fresh network, where there are some."""
    if saves_start(config):
        folder.fill(_saved_module(network, config), FILE)


def _saved_module(network: LayeredNetwork, config: ResolvedConfig) -> nn.Module:
    if custom_components.is_object(config.model.network):
        return network
    assert isinstance(network, EmbeddingNetwork)
    return network.head
