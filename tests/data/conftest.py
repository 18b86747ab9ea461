"""Small images to build small trees of."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

MakeImage = Callable[..., Path]


@pytest.fixture
def make_image() -> MakeImage:
    """Writes an image whose grey level is its number, folders included."""
    made = [0]

    def make(path: Path, size: tuple[int, int] = (12, 9)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        made[0] += 1
        Image.new("RGB", size, (made[0] % 256,) * 3).save(path)
        return path

    return make
