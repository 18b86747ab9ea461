"""A data set's own transform is used: its tensors as they are, its images before the run's."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset

from unseen.data.images.transforms import UserTransform
from unseen.data.in_memory.user_data import UserTensors, as_dataset

DRAW = np.random.default_rng(0)
LABELS = [number // 4 for number in range(32)]


class Photos:
    """As torchvision's ImageFolder: paths, classes, and a transform for each of both."""

    def __init__(self, folder: Path, transform: Any = None, target_transform: Any = None) -> None:
        self.transform, self.target_transform = transform, target_transform
        self.samples = [(str(folder / f"{place}.png"), label) for place, label in enumerate(LABELS)]
        self.targets = LABELS
        for place, (path, label) in enumerate(self.samples):
            pixels = np.random.default_rng(place).integers(0, 60, (20, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels + np.uint8(20 * label)).save(path)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, label = self.samples[index]
        image: Any = Image.open(path)
        image = self.transform(image) if self.transform else image
        return image, self.target_transform(label) if self.target_transform else label


def normalized(image: Image.Image) -> Tensor:
    """What Resize, ToTensor and Normalize make."""
    pixels = np.asarray(image.resize((16, 16)), dtype=np.float32)
    return torch.from_numpy(pixels / 60 - 1).permute(2, 0, 1)


def noisy(image: Image.Image) -> Tensor:
    """With random steps, of every generator people draw from."""
    noise = torch.rand(()) + random.random() + np.random.random()  # noqa: NPY002 - as strangers do
    return normalized(image) + noise


def test_tensors_are_what_the_network_gets(tmp_path: Path) -> None:
    data = Photos(tmp_path, normalized)
    for given in (data, Subset(data, range(32))):  # type: ignore[arg-type]
        made = as_dataset(given)
        assert isinstance(made, UserTensors)
        assert made.labels.tolist() == LABELS
        with made.opened(5) as image:
            torch.testing.assert_close(UserTransform(16)(image, None), data[5][0])
        assert made.image(5).size == (16, 16)


def test_random_steps_are_drawn_from_the_generator_of_the_image(tmp_path: Path) -> None:

    def of_any_size(image: Image.Image) -> Tensor:
        side = 16 if np.asarray(image).max() > 99 else 8
        return normalized(image)[:, :side, :side]

    made: Any = as_dataset(Photos(tmp_path, of_any_size))
    with pytest.raises(ValueError, match=r"\[3, 16, 16\], the first \[3, 8, 8\]: resize all alike"):
        made.digests()
