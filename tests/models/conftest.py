"""Small networks and images for the tests of networks."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unseen.models.backbone import create_backbone
from unseen.models.head import Head
from unseen.models.network import EmbeddingNetwork

MakeNetwork = Callable[..., EmbeddingNetwork]


@dataclass
class LabelNoiseSettings:
    """A data set of random images; `contents` stands for what the files hold."""

    size: int = 40
    side: int = 32
    contents: int = 0
    name: str = "noise"
    label_names: tuple[str, ...] = ("a", "b", "c", "d")
    official_test_classes: NDArray[np.int64] | None = None
    read: list[int] = field(default_factory=list)

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.arange(self.size, dtype=np.int64) % 4

    def __len__(self) -> int:
        return self.size

    def image(self, index: int) -> Image.Image:
        self.read.append(index)
        rng = np.random.default_rng([self.contents, index])
        return Image.fromarray(rng.integers(256, size=(self.side, self.side, 3), dtype=np.uint8))

    def describe(self) -> dict[str, int]:
        return {"items": self.size}

    def fingerprint(self) -> str:
        return f"{self.size} {self.side} {self.contents}"


@dataclass(frozen=True)
class Shaken:
    """A transform with a random brightness; strength 0 is deterministic."""

    strength: float = 0.0

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Tensor:
        pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255 - 0.5
        return torch.from_numpy(pixels * np.float32(1 + self.strength * rng.uniform(-1, 1)))


@cache
def pattern(name: str, size: int, embedding_size: int, **options: str) -> EmbeddingNetwork:
    """Starting values are drawn once: copying them takes a tenth of the time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = create_backbone(name, size, **options)
        return EmbeddingNetwork(backbone, Head(backbone.num_features, embedding_size))


@pytest.fixture
def make_network() -> MakeNetwork:
    def make(
        name: str = "small_conv", size: int = 32, embedding_size: int = 8, **options: str
    ) -> EmbeddingNetwork:
        return deepcopy(pattern(name, size, embedding_size, **options))

    return make


@pytest.fixture
def noise() -> type[LabelNoiseSettings]:
    return LabelNoiseSettings


@pytest.fixture
def shaken() -> type[Shaken]:
    return Shaken


@pytest.fixture
def images() -> Tensor:
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
