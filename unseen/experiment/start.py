"""What a head started from, where that came from the data (`head.start = "principal"`): kept in the
run's folder, so that the untrained network of the result is the one training began with."""

from unseen.networks.descriptor import Tappable
from unseen.networks.head import PRINCIPAL
from unseen.networks.network import EmbeddingNetwork
from unseen.training.run_folder import RunFolder

FILE = "start.safetensors"


def keep_start(folder: RunFolder, network: EmbeddingNetwork) -> None:
    folder.keep(FILE, network.head.state_dict())


def take_start(folder: RunFolder, network: Tappable, start: str) -> None:
    """Puts the kept values into a fresh network, where `head.start` says there are some."""
    if start == PRINCIPAL:
        assert isinstance(network, EmbeddingNetwork)
        folder.fill(network.head, FILE)
