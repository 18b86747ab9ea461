"""The last step of every transform: 8-bit RGB to what a network's weights expect."""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unseen.data.pictures.crops import Pixels

Channels = tuple[float, float, float]


@dataclass(frozen=True)
class Normalising:
    """size: side of the result. mean, std: of the channels, on a scale of 0..1."""

    size: int
    mean: Channels
    std: Channels

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ValueError(f"mean and std need 3 values each, got {self.mean} and {self.std}")
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")

    def normalised(self, pixels: Pixels) -> Tensor:  # [3, height, width]
        """pixels / (255 std) - mean / std of each channel."""
        # numpy: torch would start a team of threads inside every loader thread
        planes = np.ascontiguousarray(pixels.transpose(2, 0, 1))  # while a number is a byte long
        scaled = planes.astype(np.float32)
        scaled *= np.array([1 / (255 * std) for std in self.std], dtype=np.float32)[:, None, None]
        shift = [mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        scaled -= np.array(shift, dtype=np.float32)[:, None, None]
        return torch.from_numpy(scaled)

    def colours(self, image: Tensor) -> Image.Image:  # [3, height, width]
        """What a network gets, brought back to a picture."""
        levels = image.numpy().transpose(1, 2, 0) * np.array(self.std) + np.array(self.mean)
        return Image.fromarray((levels * 255).round().clip(0, 255).astype(np.uint8))
