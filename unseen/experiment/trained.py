"""A trained run, ready for use: its network at its descriptor, with the transform that feeds it.

    trained = unseen.load("runs/demo")
    trained.embed(["a.jpg", "b.jpg"])       # paths, files' bytes, PIL pictures, arrays -> [2, d]
    trained.network(images).embeddings      # a batch [N, 3, s, s] of prepared pictures -> [N, d]

The data the run was trained on are not needed.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen import assemble
from unseen.config import SettledConfig
from unseen.contracts import Network, Progress
from unseen.data.pictures.boxes import inside
from unseen.data.pictures.crops import Loaded
from unseen.data.pictures.decode import Box, PictureFile, UnreadablePictureError
from unseen.data.pictures.prefetch import prefetch
from unseen.experiment.layers import BEST
from unseen.experiment.orders import FILE, ORDERS, read_at
from unseen.experiment.run_context import stored_config, unusable
from unseen.names import near_path
from unseen.neighbours.space import to_sphere
from unseen.networks.descriptor import Shortened
from unseen.networks.lora import merge
from unseen.training.run_folder import RunFolder
from unseen.training.selection import read_selection


class BoxedPicture(NamedTuple):
    """A part of a picture file, or of its bytes: left, top, right, bottom."""

    path: Path | str | bytes
    box: Box


# bytes: of a picture file
Picture = str | Path | bytes | Image.Image | NDArray[np.uint8] | BoxedPicture

BATCH = 64
# settings that change a vector
DECIDING = ("backbone", "network", "pooling", "mirror", "head", "ensemble", "normalise")


@dataclass(frozen=True)
class Trained:
    """`network(images).embeddings` is the run's descriptor, raw; `embed` gives it as it is
    compared: unit vectors (cosine), or raw ones (Euclidean) where the run has normalise = false."""

    folder: RunFolder
    config: SettledConfig
    network: Network
    transform: Any  # a picture to a tensor [3, s, s]
    descriptor: str  # the layer

    @classmethod
    def open(cls, folder: Path | str) -> "Trained":
        """The kept network of a run folder, in evaluation mode."""
        run = RunFolder(Path(folder))
        if not run.file("weights.safetensors").exists():
            near = near_path(folder) or ": `unseen train` makes one"
            raise ValueError(f"{folder} holds no trained network{near}")
        config, layer = stored_config(run), descriptor_of(run)
        if unusable(config.device):
            config = config.model_copy(update={"device": "cpu"})
        # starting weights would be replaced at once, and may not be on this machine
        network = assemble.network(config.model_copy(update={"weights": None}))
        run.fill(network, "weights.safetensors")
        merge(network)
        _, transform = assemble.picture_transforms(config, network.to(config.device))
        return cls(run, config, read_at(layer, network, config, run).eval(), transform, layer)

    def at(self, size: int | None) -> "Trained":
        """The same with a smaller descriptor, one of the run's nested sizes; None: all of it."""
        whole = self.network.embedding_size
        if size is None or size == whole:
            return self
        if size not in self.config.nested or size > whole:
            has = ", ".join(map(str, self.config.nested)) or str(whole)
            raise ValueError(
                f"{self.folder.path} has descriptors of {has} numbers, not of {size}: training "
                f"with nested=[...,{whole}] makes smaller ones"
            )
        return replace(self, network=Shortened(self.network, size).eval())

    @property
    def device(self) -> torch.device:
        return torch.device(self.config.device)

    @property
    def threads(self) -> int:
        """That prepare pictures while the network computes."""
        return max(1, self.config.workers)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the weights and with every setting that changes a vector."""
        values = self.config.model_dump()
        sentences = [self.descriptor, repr(self.transform), *(values[key] for key in DECIDING)]
        sentences += [self.network.embedding_size] if isinstance(self.network, Shortened) else []
        digest = hashlib.sha256(json.dumps(sentences).encode())
        for name in ("weights.safetensors", *([FILE] if self.descriptor == ORDERS else [])):
            digest.update(self.folder.file(name).read_bytes())
        return digest.hexdigest()[:32]

    def embed(
        self,
        pictures: Picture | Sequence[Picture],
        progress: Progress | None = None,
        on_unreadable: Callable[[int, UnreadablePictureError], None] | None = None,
    ) -> Tensor:  # [n, d], of one picture [d]; float32 on the CPU
        """Descriptors of pictures, in their order. `on_unreadable` is called with the place of
        each that cannot be read, which then has no row; without it, the first one is an error."""
        if isinstance(pictures, np.ndarray) and pictures.ndim == 4:
            pictures = list(pictures)
        if isinstance(pictures, str | Path | bytes | Image.Image | np.ndarray | BoxedPicture):
            return self.embed([pictures])[0]
        several = pictures

        def prepared(place: int) -> Tensor | None:
            try:
                return self.prepared(several[place])
            except UnreadablePictureError as error:
                if on_unreadable is None:
                    raise
                on_unreadable(place, error)
                return None

        parts = [torch.zeros(0, self.network.embedding_size)]
        images = prefetch(prepared, range(len(several)), self.threads)
        done = 0
        while batch := list(islice(images, BATCH)):
            whole = [image for image in batch if image is not None]
            parts += [self.vectors(torch.stack(whole))] if whole else []
            done += len(batch)
            if progress is not None:
                progress(done, len(several))
        return torch.cat(parts)

    def prepared(self, picture: Picture) -> Tensor:  # [3, s, s]
        """A picture as the network takes it."""
        if self.transform is None:
            raise ValueError(f"{self.folder.path} was trained on features: it takes no pictures")
        with opened(picture) as one:
            prepared: Tensor = self.transform(one, None)
        return prepared

    def vectors(self, images: Tensor) -> Tensor:  # [N, d] float32 on the CPU
        """Descriptors of prepared pictures, or of features, as they are compared."""
        with torch.inference_mode():
            images = images.to(self.device)
            if images.ndim == 4:
                images = images.contiguous(memory_format=torch.channels_last)
            found = self.network(images).embeddings.float().cpu()
        return (to_sphere(found) if self.config.normalise else found).clone()


def opened(picture: Picture) -> PictureFile | Loaded:
    """A picture from wherever it comes, its pixels still to be fetched."""
    if isinstance(picture, str | Path | bytes):
        return PictureFile(picture)
    if isinstance(picture, BoxedPicture):
        return inside(picture.path, picture.box)
    if isinstance(picture, Image.Image):
        return Loaded(np.array(picture.convert("RGB")))
    if picture.dtype != np.uint8 or picture.shape[2:] not in ((), (3,)) or picture.ndim < 2:
        raise ValueError(
            "a picture must be a path, the bytes of a file, a PIL picture or a uint8 array "
            f"[height, width(, 3)], got {picture.dtype} {list(picture.shape)}"
        )
    return Loaded(np.array(Image.fromarray(picture).convert("RGB")))


def descriptor_of(run: RunFolder) -> str:
    """The layer a run is used at; "best" is known once its validation classes have chosen."""
    asked = stored_config(run).descriptor
    if asked != BEST:
        return asked
    chosen = read_selection(run).descriptor
    if chosen is None:
        raise ValueError(
            f"{run.path} has not chosen its best layer yet: "
            f"`unseen evaluate {shlex.quote(str(run.path))}` does"
        )
    return chosen.layer
