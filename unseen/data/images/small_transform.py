"""The transform `small`, for characters and other small images: many at once, or one by one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from unseen.data.images.crops import LazyImage, Normalization, as_image

_MAX_TURN = math.radians(8)
_MAX_ZOOM = 0.1
_MAX_SHIFT = 0.08  # of the side


@dataclass(frozen=True)
class _OnPixels(Normalization):
    """Works on a whole batch of images of one size; a single image is a batch of one."""

    def _pixels(self, image: LazyImage | Image.Image) -> Tensor:  # uint8 [1, 3, height, width]
        pixels = as_image(image).pixels(None, (self.size, self.size))
        return torch.from_numpy(np.array(pixels.transpose(2, 0, 1)))[None]

    def _floats(self, pixels: Tensor) -> Tensor:  # uint8 [N, 1 or 3, h, w] -> [N, ., size, size]
        images = pixels.float()
        if images.shape[-2:] != (self.size, self.size):
            size = (self.size, self.size)
            images = F.interpolate(images, size, mode="bilinear", antialias=True)
        return images

    def _finished(self, images: Tensor) -> Tensor:  # [N, 3, size, size]
        mean, std = (255 * torch.tensor(v).view(3, 1, 1) for v in (self.mean, self.std))
        return (images - mean) / std


@dataclass(frozen=True)
class SmallTraining(_OnPixels):
    def __call__(self, image: LazyImage | Image.Image, rng: np.random.Generator) -> Tensor:
        return self.on_pixels(self._pixels(image), [rng])[0]

    def on_pixels(self, pixels: Tensor, rngs: Sequence[np.random.Generator]) -> Tensor:
        draws = np.stack([rng.uniform(-1, 1, 4) for rng in rngs]).astype(np.float32)
        turn, zoom, across, down = torch.from_numpy(draws).T[:, :, None, None]  # each [N, 1, 1]
        zoom = 1 + _MAX_ZOOM * zoom
        cos, sin = zoom * torch.cos(_MAX_TURN * turn), zoom * torch.sin(_MAX_TURN * turn)
        line = (torch.arange(self.size) * 2 + 1) / self.size - 1  # pixel centres on -1..1
        x, y = line[None, None, :], line[None, :, None]
        shift = 2 * _MAX_SHIFT
        grid_x, grid_y = cos * x - sin * y + shift * across, sin * x + cos * y + shift * down
        grid = torch.stack([grid_x, grid_y], dim=-1)  # [N, size, size, 2]
        images = F.grid_sample(
            self._floats(pixels), grid, padding_mode="border", align_corners=False
        )
        return self._finished(images)


@dataclass(frozen=True)
class SmallEvaluation(_OnPixels):
    def __call__(
        self, image: LazyImage | Image.Image, rng: np.random.Generator | None = None
    ) -> Tensor:
        return self.on_pixels(self._pixels(image))[0]

    def on_pixels(self, pixels: Tensor, rngs: Sequence[np.random.Generator] = ()) -> Tensor:
        return self._finished(self._floats(pixels))
