"""What training begins with: its name, and, where a head's start came from the data (`head.start =
"principal"`), its values, kept in the run's folder, so that the untrained network of the result is
the one training began with."""

from unseen.config import SettledConfig
from unseen.evaluation.gain import UNTRAINED, Start
from unseen.networks.backbone import FEATURES, IMAGENET
from unseen.networks.descriptor import Tappable
from unseen.networks.head import PRINCIPAL
from unseen.networks.network import POOLED, EmbeddingNetwork
from unseen.training.run_folder import RunFolder

FILE = "start.safetensors"


def start_of(config: SettledConfig) -> Start:
    """The network before its first step, called what it is."""
    if config.backbone.startswith(FEATURES):
        return Start("head at its start", "features")
    if config.weights is None:
        return Start(UNTRAINED, "random")
    weights = "ImageNet weights" if config.weights == IMAGENET else "given weights"
    title = f"{weights}, head at its start"
    return Start(title, "frozen" if config.freeze_until == POOLED else "pretrained")


def keep_start(folder: RunFolder, network: EmbeddingNetwork) -> None:
    folder.keep(FILE, network.head.state_dict())


def take_start(folder: RunFolder, network: Tappable, start: str) -> None:
    """Puts the kept values into a fresh network, where `head.start` says there are some."""
    if start == PRINCIPAL:
        assert isinstance(network, EmbeddingNetwork)
        folder.fill(network.head, FILE)
