"""A trained run, ready for use: its network at its descriptor, with its transform."""

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

from unseen.config import build
from unseen.config.schema import ResolvedConfig
from unseen.core.contracts import LazyImage, Network, Progress
from unseen.core.names import near_path
from unseen.data.images.boxes import inside
from unseen.data.images.crops import Loaded
from unseen.data.images.decode import Box, SafeImageFile, UnreadableImageError
from unseen.data.images.load_image import as_rgb, upright
from unseen.data.images.prefetch import prefetch
from unseen.data.images.transforms import UserTransform
from unseen.models.backbone import FEATURES
from unseen.models.descriptor import Shortened
from unseen.models.lora import merge
from unseen.neighbors.space import require_finite, to_sphere
from unseen.runs.evaluate_layers import BEST
from unseen.runs.prepare import stored_config, unusable
from unseen.runs.run_networks import ORDERS, ORDERS_FILE, read_at
from unseen.training.run_folder import RunFolder
from unseen.training.selected_weights import read_selection


class BoxedImage(NamedTuple):
    """A part of an image file, or of its bytes: left, top, right, bottom."""

    path: Path | str | bytes
    box: Box


# bytes: of an image file
ImageLike = str | Path | bytes | Image.Image | NDArray[np.uint8] | Tensor | BoxedImage | LazyImage

BATCH = 64
# settings that change a vector
DECIDING = ("backbone", "network", "pooling", "mirror", "head", "ensemble", "normalize")


@dataclass(frozen=True)
class Trained:
    """`network(images).embeddings` is the run's descriptor, raw; `embed` gives it as it is
    compared: unit vectors (cosine), or raw ones (Euclidean) where the run has normalize = false.

    The data of the run are not needed.

    Example:
        trained = unseen.load("runs/demo")
        trained.embed(["a.jpg", "b.jpg"])  # paths, bytes, PIL images, arrays -> [2, d]
        trained.network(images).embeddings  # a batch [N, 3, s, s] of prepared images -> [N, d]
    """

    folder: RunFolder
    config: ResolvedConfig
    network: Network
    transform: Any  # an image to a tensor [3, s, s]
    descriptor: str  # the layer

    @classmethod
    def open(cls, folder: Path | str) -> "Trained":
        """The kept network of a run folder, in evaluation mode."""
        run = RunFolder(Path(folder))
        if not run.file("weights.safetensors").exists():
            near = near_path(folder) or ": `unseen train` makes one"
            raise ValueError(f"{folder} holds no trained network{near}")
        config, layer = stored_config(run), descriptor_of(run)
        if unusable(config.training.machine.device):
            config = config.with_values({"device": "cpu"})
        # starting weights would be replaced at once, and may not be on this machine
        network = build.network(config.with_values({"weights": None}))
        run.fill(network, "weights.safetensors")
        merge(network)
        _, transform = build.image_transforms(config, network.to(config.training.machine.device))
        return cls(run, config, read_at(layer, network, config, run).eval(), transform, layer)

    def at(self, size: int | None) -> "Trained":
        """The same with a smaller descriptor, one of the run's nested sizes; None: all of it."""
        whole = self.network.embedding_size
        if size is None or size == whole:
            return self
        if size not in self.config.model.nested_sizes or size > whole:
            has = ", ".join(map(str, self.config.model.nested_sizes)) or str(whole)
            raise ValueError(
                f"{self.folder.path} has descriptors of {has} numbers, not of {size}: training "
                f"with nested=[...,{whole}] makes smaller ones"
            )
        return replace(self, network=Shortened(self.network, size).eval())

    @property
    def device(self) -> torch.device:
        return torch.device(self.config.training.machine.device)

    @property
    def threads(self) -> int:
        """That prepare images while the network computes."""
        return max(1, self.config.training.machine.workers)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the weights and with every setting that changes a vector."""
        values = self.config.flat()
        sentences = [self.descriptor, repr(self.transform), *(values[key] for key in DECIDING)]
        sentences += [self.network.embedding_size] if isinstance(self.network, Shortened) else []
        digest = hashlib.sha256(json.dumps(sentences).encode())
        for name in ("weights.safetensors", *([ORDERS_FILE] if self.descriptor == ORDERS else [])):
            digest.update(self.folder.file(name).read_bytes())
        return digest.hexdigest()[:32]

    def embed(
        self,
        images: ImageLike | Sequence[ImageLike],
        progress: Progress | None = None,
        on_unreadable: Callable[[int, UnreadableImageError], None] | None = None,
    ) -> Tensor:  # [n, d], of one image [d]; float32 on the CPU
        """Descriptors of images, in their order. `on_unreadable` is called with the place of
        each that cannot be read, which then has no row; without it, the first one is an error.
        Of a run on features: of features [n, P], or of one [P]."""
        if self.transform is None:
            return self._of_features(images)
        if isinstance(images, np.ndarray | Tensor) and images.ndim == 4:
            images = list(images)
        one = str | Path | bytes | Image.Image | np.ndarray | Tensor | BoxedImage | LazyImage
        if isinstance(images, one):
            return self.embed([images])[0]
        several = images

        def prepared(place: int) -> Tensor | None:
            try:
                return self.prepared(several[place])
            except UnreadableImageError as error:
                if on_unreadable is None:
                    raise
                on_unreadable(place, error)
                return None

        parts = [torch.zeros(0, self.network.embedding_size)]
        prepared_images = prefetch(prepared, range(len(several)), self.threads)
        done = 0
        while batch := list(islice(prepared_images, BATCH)):
            whole = [image for image in batch if image is not None]
            parts += [self.vectors(torch.stack(whole))] if whole else []
            done += len(batch)
            if progress is not None:
                progress(done, len(several))
        return torch.cat(parts)

    def prepared(self, image: ImageLike) -> Tensor:  # [3, s, s]
        """An image as the network takes it."""
        if self.transform is None:
            raise ValueError(f"{self.folder.path} was trained on features: it takes no images")
        if isinstance(image, Tensor) and isinstance(self.transform, UserTransform):
            return image.float()
        with opened(image) as one:
            prepared: Tensor = self.transform(one, None)
        return prepared

    def _of_features(self, features: Any) -> Tensor:  # [n, d] or [d]
        size = int(self.config.model.backbone.removeprefix(FEATURES))
        try:
            rows = torch.from_numpy(np.asarray(features, dtype=np.float32))
        except (ValueError, TypeError):  # paths, images, rows of unequal length
            rows = torch.zeros(0)
        if rows.ndim not in (1, 2) or rows.shape[-1] != size:
            got = list(rows.shape) if rows.numel() else type(features).__name__
            raise ValueError(
                f"{self.folder.path} was trained on features of size {size}: embed takes "
                f"[n, {size}] or [{size}], got {got}"
            )
        if rows.ndim == 1:
            return self._of_features(rows[None])[0]
        require_finite(rows, "features")
        return torch.cat([self.vectors(chunk) for chunk in rows.split(4096)])

    def vectors(self, images: Tensor) -> Tensor:  # [N, d] float32 on the CPU
        """Descriptors of prepared images, or of features, as they are compared."""
        with torch.inference_mode():
            images = images.to(self.device)
            if images.ndim == 4:
                images = images.contiguous(memory_format=torch.channels_last)
            result = self.network(images).embeddings.float().cpu()
        return (to_sphere(result) if self.config.evaluation.normalize else result).clone()


def opened(image: ImageLike) -> LazyImage:
    """An image from wherever it comes, its pixels still to be fetched."""
    if isinstance(image, LazyImage):
        return image
    if isinstance(image, str | Path | bytes):
        return SafeImageFile(image)
    if isinstance(image, BoxedImage):
        return inside(image.path, image.box)
    if isinstance(image, Image.Image):
        return Loaded(np.array(as_rgb(upright(image))))
    is_image = isinstance(image, np.ndarray) and image.dtype == np.uint8
    if not is_image or image.shape[2:] not in ((), (3,)) or image.ndim < 2:
        raise ValueError(
            "an image must be a path, the bytes of a file, a PIL image or a uint8 array "
            f"[height, width(, 3)], got {image.dtype} {list(image.shape)}"
        )
    return Loaded(np.array(Image.fromarray(np.asarray(image)).convert("RGB")))


def descriptor_of(run: RunFolder) -> str:
    """The layer a run is used at; "best" is known once its validation classes have chosen."""
    request = stored_config(run).evaluation.descriptor
    if request != BEST:
        return request
    chosen = read_selection(run).descriptor
    if chosen is None:
        raise ValueError(
            f"{run.path} has not chosen its best layer yet: "
            f"`unseen evaluate run {shlex.quote(str(run.path))}` does"
        )
    return chosen.layer
