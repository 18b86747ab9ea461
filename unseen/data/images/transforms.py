"""What happens to an image on its way into the network, by name: for training and for evaluation.

    name     training                                          evaluation
    base     a random crop (8 % to all of the area, 3/4 to     short side to size * 256/224,
             4/3 wide) resized to `size`, mirrored or not      centre crop; interpolation, share
                                                               of the crop as the network says
    red      short side to size * 256/224, a random crop,      short side to size * 256/224,
             mirrored or not: fewer changes                    centre crop
    big      as base, at 256 where base has 224                short side to `size`, centre crop
    adv      as base, a fifth grey, colours shifted            as base
    horde    longer side to size * 0.8..1.8 (Lanczos), a       squeezed to size * 1.144, centre
             random crop, black where too small; mirrored      crop; at 256
    vo_hays  short side to size * 1..1.1, a random crop,       short side to `size`, centre crop
             mirrored or not
    thesis   as base                                           as base
    small    turned, scaled and shifted a little, never        resized to `size`; images that
             mirrored: a b is no d; for characters             are not square are squeezed
    given    the tensors that a data set's own transform       likewise
             has made, as they are

Sources  base, red, big, adv: K. Roth et al., ICML 2020 (the grey step is in their code only).
         horde: P. Jacob et al., ICCV 2019, as in their code. vo_hays: N. Vo, J. Hays, WACV 2019.
         thesis: B. Psomas. The names by which sources go elsewhere mean the transform each of
         them used: revisit and revisit_code are base, thesis_code is thesis, density is red.

All end in float32 [3, size, size], 0..1 less `mean` over `std` per channel. Random choices come
from the generator of the image, nothing else, so an image does not depend on who prepares it, or
when. A transform takes an image of Pillow or one whose pixels wait (`crops.Image`): then only
what the crop needs is decoded.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from unseen.core.torchvision_operators import vision
from unseen.data.images import crops
from unseen.data.images.crops import (
    BILINEAR,
    LANCZOS,
    USUAL_CROP_PCT,
    Channels,
    Crop,
    LazyImage,
    Normalization,
    Pixels,
    Resizing,
)

Rng = np.random.Generator

_MARGIN = 1 / USUAL_CROP_PCT  # what a centre crop leaves around itself
_USUAL = Resizing()
_HORDE_MARGIN = 1.144
_SMALL_TURN = math.radians(8)
_SMALL_ZOOM = 0.1
_SMALL_SHIFT = 0.08  # of the side; these three: of `small`
USER_TRANSFORM = "given"


class Transform(Protocol):
    """From an image to what the network sees."""

    def __call__(self, image: LazyImage | Image.Image, rng: Rng) -> Tensor: ...


@dataclass(frozen=True)
class _Training(Normalization, ABC):
    """Crops as its method says, mirrors half of the time."""

    interpolation: str = BILINEAR

    def __call__(self, image: LazyImage | Image.Image, rng: Rng) -> Tensor:
        image = crops.as_image(image)
        pixels = crops.cut(image, self.crop(*image.size, rng), self.interpolation)
        pixels = self.coloured(pixels, rng)
        return self.normalized(pixels[:, ::-1] if rng.random() < 0.5 else pixels)

    @abstractmethod
    def crop(self, width: int, height: int, rng: Rng) -> Crop: ...

    def coloured(self, pixels: Pixels, rng: Rng) -> Pixels:
        return pixels


@dataclass(frozen=True)
class _Evaluation(Normalization, ABC):
    interpolation: str = BILINEAR

    def __call__(self, image: LazyImage | Image.Image, rng: Rng | None = None) -> Tensor:
        image = crops.as_image(image)
        crop = self.crop(*image.size)
        return self.normalized(crops.cut(image, crop, self.interpolation))

    @abstractmethod
    def crop(self, width: int, height: int) -> Crop: ...


@dataclass(frozen=True)
class RandomArea(_Training):
    """grey: share of images without colour. jitter: reach of brightness, contrast, saturation
    (around 1) and hue (around 0). smallest: the least share of the area."""

    grey: float = 0.0
    jitter: float = 0.0
    smallest: float = 0.08

    def crop(self, width: int, height: int, rng: Rng) -> Crop:
        return crops.random_area(width, height, self.size, (self.smallest, 1.0), rng)

    def coloured(self, pixels: Pixels, rng: Rng) -> Pixels:
        if not self.grey and not self.jitter:
            return pixels
        image = Image.fromarray(pixels)  # Pillow's operations start no threads of their own
        if rng.random() < self.grey:
            image = vision().rgb_to_grayscale(image, num_output_channels=3)
        factors = 1 + rng.uniform(-self.jitter, self.jitter, 4)
        for which in rng.permutation(4):
            shift = float(factors[which])
            change = getattr(vision(), f"adjust_{_COLORS[which]}")
            image = change(image, shift - 1 if which == _HUE else shift)
        return np.asarray(image)


_COLORS = ("brightness", "contrast", "saturation", "hue")
_HUE = 3


@dataclass(frozen=True)
class RandomPlace(_Training):
    """low, high: the short side before the crop, in units of the crop's."""

    low: float = 1.0
    high: float = 1.1

    def crop(self, width: int, height: int, rng: Rng) -> Crop:
        short = round(self.size * rng.uniform(self.low, self.high))
        size = crops.with_short_side(width, height, short)
        return Crop((0, 0, width, height), size, crops.random_window(size, self.size, rng))


@dataclass(frozen=True)
class ManyResolutions(_Training):
    """low, high: the longer side before the crop, in units of the crop's."""

    low: float = 0.8
    high: float = 1.8
    interpolation: str = LANCZOS

    def crop(self, width: int, height: int, rng: Rng) -> Crop:
        scale = self.size * rng.uniform(self.low, self.high) / max(width, height)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        return Crop((0, 0, width, height), size, crops.random_window(size, self.size, rng))


@dataclass(frozen=True)
class Center(_Evaluation):
    """crop_pct: what the crop is of the short side before it. is_squeezed: of both sides."""

    crop_pct: float = USUAL_CROP_PCT
    is_squeezed: bool = False

    def crop(self, width: int, height: int) -> Crop:
        short = math.floor(self.size / self.crop_pct)  # as timm rounds
        sides = (1, 1) if self.is_squeezed else (width, height)
        size = crops.with_short_side(*sides, short)
        return Crop((0, 0, width, height), size, crops.center_window(size, self.size))


@dataclass(frozen=True)
class SqueezedCenter(_Evaluation):
    """margin: both sides before the crop, in units of the crop's."""

    margin: float = _HORDE_MARGIN
    interpolation: str = LANCZOS

    def crop(self, width: int, height: int) -> Crop:
        side = int(np.ceil(self.size * self.margin))
        window = crops.center_window((side, side), self.size)
        return Crop((0, 0, width, height), (side, side), window)


@dataclass(frozen=True)
class UserTransform(Normalization):
    """What a data set's own transform has made."""

    mean: Channels = (0.0, 0.0, 0.0)
    std: Channels = (1.0, 1.0, 1.0)

    def __call__(self, image: LazyImage | Image.Image, rng: Rng | None = None) -> Tensor:
        if not isinstance(image, crops.Prepared):
            raise ValueError(
                "the run was trained on what a data set's own transform made: it takes tensors as "
                f"that makes them, [3, {self.size}, {self.size}], and no images"
            )
        return image.tensor(rng)


@dataclass(frozen=True)
class _OnPixels(Normalization):
    """Works on a whole batch of images of one size; a single image is a batch of one."""

    def _pixels(self, image: LazyImage | Image.Image) -> Tensor:  # uint8 [1, 3, height, width]
        pixels = crops.as_image(image).pixels(None, (self.size, self.size))
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
    def __call__(self, image: LazyImage | Image.Image, rng: Rng) -> Tensor:
        return self.on_pixels(self._pixels(image), [rng])[0]

    def on_pixels(self, pixels: Tensor, rngs: Sequence[Rng]) -> Tensor:
        draws = np.stack([rng.uniform(-1, 1, 4) for rng in rngs]).astype(np.float32)
        turn, zoom, across, down = torch.from_numpy(draws).T[:, :, None, None]  # each [N, 1, 1]
        zoom = 1 + _SMALL_ZOOM * zoom
        cos, sin = zoom * torch.cos(_SMALL_TURN * turn), zoom * torch.sin(_SMALL_TURN * turn)
        line = (torch.arange(self.size) * 2 + 1) / self.size - 1  # pixel centres on -1..1
        x, y = line[None, None, :], line[None, :, None]
        shift = 2 * _SMALL_SHIFT
        grid_x, grid_y = cos * x - sin * y + shift * across, sin * x + cos * y + shift * down
        grid = torch.stack([grid_x, grid_y], dim=-1)  # [N, size, size, 2]
        images = F.grid_sample(
            self._floats(pixels), grid, padding_mode="border", align_corners=False
        )
        return self._finished(images)


@dataclass(frozen=True)
class SmallEvaluation(_OnPixels):
    def __call__(self, image: LazyImage | Image.Image, rng: Rng | None = None) -> Tensor:
        return self.on_pixels(self._pixels(image))[0]

    def on_pixels(self, pixels: Tensor, rngs: Sequence[Rng] = ()) -> Tensor:
        return self._finished(self._floats(pixels))


Maker = Callable[[int, Channels, Channels], Transform]

NAMES: dict[str, tuple[Maker, Maker]] = {
    "base": (RandomArea, Center),
    "red": (partial(RandomPlace, low=_MARGIN, high=_MARGIN), Center),
    "big": (RandomArea, partial(Center, crop_pct=1.0)),
    "adv": (partial(RandomArea, grey=0.2, jitter=0.2), Center),
    "horde": (ManyResolutions, SqueezedCenter),
    "vo_hays": (RandomPlace, partial(Center, crop_pct=1.0)),
    "thesis": (RandomArea, Center),
    "small": (SmallTraining, SmallEvaluation),
}
SOURCES = {"revisit": "base", "revisit_code": "base", "thesis_code": "thesis", "density": "red"}
_HIGHER_RESOLUTION = frozenset({"big", "horde"})
_AS_NETWORK = frozenset({"base", "adv"})  # others are as their source has them


def known(name: str) -> str:
    """The transform a name, or the name of a source, stands for."""
    name = SOURCES.get(name, name)
    if name not in NAMES and name != USER_TRANSFORM:
        allowed = ", ".join(sorted([*NAMES, *SOURCES]))
        raise ValueError(f"transform must be one of {allowed}, got {name!r}")
    return name


def usual_size(name: str, size: int) -> int:
    """The size of a transform's results for a network made for `size`: 256 for 224 where the source
    used larger images."""
    return round(size * _MARGIN) if known(name) in _HIGHER_RESOLUTION else size


def named(
    name: str,
    size: int,
    mean: Channels,
    std: Channels,
    smallest_crop: float | None = None,
    resizing: Resizing = _USUAL,
) -> tuple[Transform, Transform]:
    """The training and the evaluation transform of a name. smallest_crop: the least share of the
    area that training shows; None: as its source has it. resizing: as the network's images were
    resized in its pretraining, for transforms that are of no source."""
    if name == USER_TRANSFORM:
        return UserTransform(size), UserTransform(size)
    make, make_evaluation = NAMES[known(name)]
    training, evaluation = make(size, mean, std), make_evaluation(size, mean, std)
    if name in _AS_NETWORK and isinstance(training, RandomArea):
        training = replace(training, interpolation=resizing.interpolation)
        evaluation = Center(size, mean, std, **vars(resizing))
    if smallest_crop is not None:
        if not isinstance(training, RandomArea):
            areas = [n for n, (maker, _) in NAMES.items() if _makes_areas(maker)]
            raise ValueError(
                f"smallest_crop is a value of the transforms {', '.join(areas)}, not of {name}"
            )
        training = replace(training, smallest=smallest_crop)
    return training, evaluation


def _makes_areas(maker: Maker) -> bool:
    return getattr(maker, "func", maker) is RandomArea
