"""What happens to a picture on its way into the network, by name: for training and for judging.

    base   training: a random crop (8 % to all of the area, 3/4 to 4/3 wide) resized to `size`,
           mirrored half of the time; judging: short side to size * 256/224, centre crop. The usual
           protocol for photographs (Roth et al., ICML 2020, and most before them).
    small  training: turned, scaled and shifted a little, never mirrored: a b is no d; judging:
           resized to `size`. For characters and other small pictures without a spare margin.
           Pictures that are not square are squeezed.

Both end in float32 [3, size, size], 0..1 less `mean` over `std` per channel. Random choices come
from the generator of the picture, nothing else, so a picture does not depend on who prepares it, or
when.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

import unseen.torchvision_operators  # noqa: F401  (before torchvision)

# isort: split
from torchvision.transforms.v2 import functional as vision

_AREA = (0.08, 1.0)
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10

_MAX_TURN = math.radians(8)
_MAX_ZOOM = 0.1
_MAX_SHIFT = 0.08  # of the side


class Transform(Protocol):
    """`short_side`: a picture may come reduced to it, and still nothing of it is enlarged."""

    @property
    def short_side(self) -> int: ...

    def __call__(self, picture: Image.Image, rng: np.random.Generator) -> Tensor: ...


@dataclass(frozen=True)
class _Normalising:
    """size: side of the result. mean, std: of the channels, on a scale of 0..1."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ValueError(f"mean and std need 3 values each, got {self.mean} and {self.std}")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")

    def _normalised(self, picture: Image.Image) -> Tensor:  # [3, height, width]
        # numpy: torch would start a team of threads inside every loader thread
        pixels = np.asarray(picture, dtype=np.float32)
        pixels = pixels - 255 * np.array(self.mean, dtype=np.float32)
        pixels /= 255 * np.array(self.std, dtype=np.float32)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


@dataclass(frozen=True)
class BaseTraining(_Normalising):
    @property
    def short_side(self) -> int:
        # The smallest crop of a picture this large still has `size` pixels on its shorter side.
        return math.ceil(self.size / math.sqrt(_AREA[0] * _RATIO[0]))

    def __call__(self, picture: Image.Image, rng: np.random.Generator) -> Tensor:
        left, top, width, height = _random_box(*picture.size, rng)
        size = [self.size, self.size]
        picture = vision.resized_crop(picture, top, left, height, width, size)
        if rng.random() < 0.5:
            picture = vision.horizontal_flip(picture)
        return self._normalised(picture)


@dataclass(frozen=True)
class BaseEvaluation(_Normalising):
    @property
    def short_side(self) -> int:
        return round(self.size * 256 / 224)

    def __call__(self, picture: Image.Image, rng: np.random.Generator | None = None) -> Tensor:
        picture = vision.resize(picture, [self.short_side])
        return self._normalised(vision.center_crop(picture, [self.size, self.size]))


@dataclass(frozen=True)
class _OnPixels(_Normalising):
    """Works on a whole batch of pictures of one size; a single picture is a batch of one."""

    @property
    def short_side(self) -> int:
        return self.size

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
    def __call__(self, picture: Image.Image, rng: np.random.Generator) -> Tensor:
        return self.on_pixels(_pixels(picture), [rng])[0]

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
    def __call__(self, picture: Image.Image, rng: np.random.Generator | None = None) -> Tensor:
        return self.on_pixels(_pixels(picture))[0]

    def on_pixels(self, pixels: Tensor, rngs: Sequence[np.random.Generator] = ()) -> Tensor:
        return self._finished(self._floats(pixels))


NAMES: dict[str, tuple[type, type]] = {
    "base": (BaseTraining, BaseEvaluation),
    "small": (SmallTraining, SmallEvaluation),
}


def named(
    name: str, size: int, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> tuple[Transform, Transform]:
    """The training and the judging transform of a name."""
    if name not in NAMES:
        raise ValueError(f"transform must be one of {', '.join(sorted(NAMES))}, got {name!r}")
    training, evaluation = NAMES[name]
    return training(size, mean, std), evaluation(size, mean, std)


def _pixels(picture: Image.Image) -> Tensor:  # uint8 [1, 3, height, width]
    return torch.from_numpy(np.array(picture).transpose(2, 0, 1))[None]


def _random_box(
    width: int, height: int, rng: np.random.Generator
) -> tuple[int, int, int, int]:  # left, top, width, height
    """A box of random area and shape; where ten tries do not fit, the largest one, centred."""
    area = width * height * rng.uniform(*_AREA, _TRIES)
    ratio = np.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1]), _TRIES))
    widths = np.sqrt(area * ratio).round().astype(int)
    heights = np.sqrt(area / ratio).round().astype(int)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    if fits.any():
        w, h = int(widths[fits.argmax()]), int(heights[fits.argmax()])
        return int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h
    w = max(1, min(width, round(height * _RATIO[1])))
    h = max(1, min(height, round(width / _RATIO[0])))
    return (width - w) // 2, (height - h) // 2, w, h
