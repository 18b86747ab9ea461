"""What training begins with: its name, and its values where they cannot be drawn again, kept in the
run's folder, so that the untrained network of the result is the one training began with: those of a
head that came from the data (`head.start = "principal"`), those of a network given as an object."""

from torch import nn

from unseen import outside
from unseen.config import SettledConfig
from unseen.evaluation.gain import UNTRAINED, Start
from unseen.networks.backbone import FEATURES, IMAGENET
from unseen.networks.head import PRINCIPAL
from unseen.networks.network import EmbeddingNetwork, LayeredNetwork
from unseen.networks.taps import POOLED
from unseen.training.run_folder import RunFolder

FILE = "start.safetensors"


def start_of(config: SettledConfig) -> Start:
    """The network before its first step, called what it is."""
    if config.backbone.startswith(FEATURES):
        return Start("head at its start", "features")
    if config.weights is None:
        return Start(UNTRAINED, "random")
    weights = "given weights"
    if config.weights == IMAGENET:  # timm's may have learned from other pictures
        weights = (
            "pretrained weights" if config.backbone.startswith("timm:") else "ImageNet weights"
        )
    title = f"{weights}, head at its start"
    return Start(title, "frozen" if config.freeze_until == POOLED else "pretrained")


def has_kept_start(config: SettledConfig) -> bool:
    """Whether the start is kept: config and seed do not give it back."""
    return config.head.start == PRINCIPAL or outside.is_object(config.network)


def keep_start(folder: RunFolder, network: LayeredNetwork, config: SettledConfig) -> None:
    folder.keep(FILE, _kept(network, config).state_dict())


def take_start(folder: RunFolder, network: LayeredNetwork, config: SettledConfig) -> None:
    """Puts the kept values into a fresh network, where there are some."""
    if has_kept_start(config):
        folder.fill(_kept(network, config), FILE)


def _kept(network: LayeredNetwork, config: SettledConfig) -> nn.Module:
    if outside.is_object(config.network):
        return network
    assert isinstance(network, EmbeddingNetwork)
    return network.head
