"""A tiny trained run, images to search, and rows without images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from unseen.config import schema as configs
from unseen.runs.prepare import prepare
from unseen.runs.run import train_and_evaluate
from unseen.runs.trained_run import Trained
from unseen.search.manifest import ModelEntry
from unseen.search.segment import Metadata, NewImage

TINY = [
    "data.max_classes=40",
    "batch_size=16",
    "embedding_size=16",
    "epochs=1",
    "sampler.steps=20",
    "workers=1",
    'metrics=["recall@1"]',
]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train_and_evaluate(prepare(configs.make(configs.override({}, TINY))), folder, "test")
    return folder


@pytest.fixture(scope="session")
def model(run: Path) -> Trained:
    return Trained.open(run)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes of five images: a colour and a slope each, with noise."""
    root = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    ramp = np.linspace(-1, 1, 60)
    for c in range(6):
        (root / f"class {c}").mkdir()
        color, slope = generator.uniform(60, 200, 3), generator.uniform(-60, 60, 2)
        for i in range(5):
            plane = slope[0] * ramp[:, None, None] + slope[1] * ramp[None, :, None]
            noisy = color + plane + generator.normal(0, 8, (60, 60, 3))
            pixels = np.clip(noisy, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class {c}" / f"{i}.png")
    return root


@pytest.fixture
def entry() -> ModelEntry:
    return ModelEntry(run="/nowhere", fingerprint="f" * 32, size=8, normalize=True)


@pytest.fixture(scope="session")
def rows() -> Callable[..., list[NewImage]]:
    """Rows named p0, p1, ... with unit vectors; every other one has a label."""

    def make(count: int, first: int = 0, size: int = 8) -> list[NewImage]:
        vectors: NDArray[np.float32] = (
            np.random.default_rng(first).normal(size=(count, size)).astype(np.float32)
        )
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return [
            NewImage(
                Metadata(f"/p{first + i}.jpg", f"label {i % 3}" if i % 2 else None, 10, first + i),
                vectors[i],
                f"thumbnail {first + i}".encode(),
            )
            for i in range(count)
        ]

    return make
