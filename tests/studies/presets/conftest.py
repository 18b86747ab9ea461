"""Presets end to end on tiny data: real runs, seconds each."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unseen.studies import preset as presets


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 classes of 10 features in 16 dimensions, half of them for testing."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 10)
    centres = generator.normal(size=(12, 16))
    values = centres[labels] + 2.0 * generator.normal(size=(120, 16))
    file = tmp_path_factory.mktemp("features") / "tiny.npz"
    np.savez(file, features=values.astype(np.float32), labels=labels)
    return file


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """Runs a preset in this process's folder with one seed and one epoch: its folder."""

    def make(name: str, data: Path | str, *settings: str) -> Path:
        words = ("epochs=1", "batch_size=16", *settings)
        ask = presets.Ask(str(data), "quick", words, seeds=1)
        page = presets.run(presets.find(name), ask, tmp_path / "presets", jobs=1)
        assert page.exists()
        again = page.read_bytes()
        assert presets.remake(page.parent).read_bytes() == again  # from stored values alone
        return page.parent

    return make
