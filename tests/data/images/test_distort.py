import numpy as np
import pytest
from PIL import Image

from unseen.data.images import characters
from unseen.data.images.distort import _placed, distort


@pytest.fixture(scope="module")
def drawing() -> Image.Image:
    return characters.drawing(ord("R"), "DejaVuSans")


def test_same_generator_same_image(drawing):
    first = distort(drawing, 40, np.random.default_rng(5))
    assert np.array_equal(first, distort(drawing, 40, np.random.default_rng(5)))
    assert not np.array_equal(first, distort(drawing, 40, np.random.default_rng(6)))
    assert first.shape == (40, 40)
    assert first.dtype == np.uint8


@pytest.mark.parametrize("shape", [(60, 60), (120, 6), (6, 120), (1, 1)])
def test_nothing_is_cut_off(shape):
    block = Image.new("L", shape, 255)
    for seed in range(60):
        ink = np.asarray(_placed(block, 80, np.random.default_rng(seed)))
        assert ink.max() > 100
        for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]):
            assert edge.max() == 0


def test_a_corner_stays_in_its_corner():
    """Never mirrored, never turned by much: b stays b, 6 stays 6."""
    block = Image.new("L", (60, 60), 100)
    block.paste(255, (0, 0, 20, 20))
    for seed in range(60):
        placed = np.asarray(_placed(block, 80, np.random.default_rng(seed)))
        middle = np.argwhere(placed > 50).mean(axis=0)
        corner = np.argwhere(placed > 180).mean(axis=0)
        assert (corner < middle - 8).all()


def test_both_polarities_and_many_greys_occur(drawing):
    images = [distort(drawing, 40, np.random.default_rng(seed)) for seed in range(200)]
    border = np.array([np.median(p[[0, -1]]) for p in images])
    middle = np.array([np.percentile(p[8:32, 8:32], 50) for p in images])
    assert border.std() > 25
    assert 0.08 < np.mean(border < 120) < 0.5
    assert len(np.unique(middle)) > 60
