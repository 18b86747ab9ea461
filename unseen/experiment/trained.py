"""A trained run, ready for use: its network at its descriptor, with the transform that feeds it.

    trained = unseen.load("runs/demo")
    trained.embed(["a.jpg", "b.jpg"])       # paths, PIL pictures or uint8 arrays -> [2, d]
    trained.network(images).embeddings      # a batch [N, 3, s, s] of prepared pictures -> [N, d]

The data the run was trained on are not needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen import build
from unseen.config import Config
from unseen.data.pictures.crops import Loaded
from unseen.data.pictures.decode import PictureFile
from unseen.data.pictures.loader import evaluation_batches
from unseen.evaluation.embed import embed
from unseen.experiment.layers import BEST
from unseen.experiment.orders import read_at
from unseen.experiment.setting import EMBED_BATCH, settled, stored_config
from unseen.neighbours.space import to_sphere
from unseen.networks.descriptor import Described, Tappable
from unseen.regularizers.high_order.descriptor import OrdersDescriptor
from unseen.training.run_folder import RunFolder

Picture = str | Path | Image.Image | NDArray[np.uint8]


@dataclass(frozen=True)
class Trained:
    """`network(images).embeddings` is the run's descriptor, raw; `embed` gives it as it is
    compared: unit vectors (cosine), or raw ones (Euclidean) where the run has normalise = false."""

    config: Config
    network: Tappable | Described | OrdersDescriptor
    transform: Any  # a picture to a tensor [3, s, s]
    descriptor: str  # the layer

    @classmethod
    def open(cls, folder: Path | str) -> "Trained":
        """The kept network of a run folder, in evaluation mode."""
        run = RunFolder(Path(folder))
        if not run.file("weights.safetensors").exists():
            raise ValueError(f"{folder} holds no trained network: `unseen train` makes one")
        config, layer = stored_config(run), descriptor_of(run)
        network = build.network(config).to(torch.device(config.device))
        network.load_state_dict(run.read_tensors("weights.safetensors"))
        _, transform = build.picture_transforms(config, network)
        return cls(config, read_at(layer, network, config, run).eval(), transform, layer)

    @property
    def device(self) -> torch.device:
        return torch.device(self.config.device)

    def embed(
        self, pictures: Sequence[Picture], progress: Callable[[int, int], None] | None = None
    ) -> Tensor:  # [n, d] float32 on the CPU
        """Descriptors of pictures, in their order."""
        source: Any = _Pictures(pictures)
        every, workers = np.arange(len(pictures)), settled(self.config.workers)
        batches = evaluation_batches(source, every, self.transform, EMBED_BATCH, workers=workers)
        if not len(pictures):
            return torch.zeros(0, self.network.embedding_size)
        found = embed(self.network, batches, len(pictures), self.device, progress)
        return to_sphere(found) if self.config.normalise else found


def descriptor_of(run: RunFolder) -> str:
    """The layer a run is used at; "best" is known once its validation classes have chosen."""
    asked = stored_config(run).descriptor
    if asked != BEST:
        return asked
    selection = run.read_json("selection.json")
    if "descriptor" not in selection:
        raise ValueError(
            f"{run.path} has not chosen its best layer yet: `unseen evaluate {run.path}` does"
        )
    return str(selection["descriptor"]["layer"])


class _Pictures:
    """A sequence of pictures as a loader wants it."""

    def __init__(self, pictures: Sequence[Picture]) -> None:
        self.pictures = pictures
        self.labels = np.zeros(len(pictures), dtype=np.int64)

    def opened(self, index: int) -> PictureFile | Loaded:
        found = self.pictures[index]
        if isinstance(found, str | Path):
            return PictureFile(found)
        picture = found if isinstance(found, Image.Image) else Image.fromarray(found)
        return Loaded(np.array(picture.convert("RGB")))
