from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from unseen.data.images import duplicates


def scene(seed: int, width: int = 200, height: int = 150) -> Image.Image:
    """Soft random blobs: as smooth as a photograph."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3)).astype(np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def test_the_hash_counts_darker_cells() -> None:
    ramp = np.tile(np.arange(0, 90, 10, dtype=np.uint8), (8, 1))
    brighter, _ = duplicates.appearance(Image.fromarray(ramp))
    darker, _ = duplicates.appearance(Image.fromarray(ramp[:, ::-1].copy()))
    assert int(brighter) == 2**64 - 1
    assert int(darker) == 0


def test_changed_copies_are_found_and_others_are_not(tmp_path: Path) -> None:
    images = [scene(seed) for seed in range(60)]
    scene(3).save(tmp_path / "bad.jpg", quality=40)
    images.append(Image.open(tmp_path / "bad.jpg").convert("RGB"))  # 60: re-encoded
    images.append(scene(7).resize((80, 60)))  # 61: smaller
    images.append(ImageEnhance.Brightness(scene(9)).enhance(1.02))  # 62: other light
    images.append(scene(9))  # 63: the same
    looks = [duplicates.appearance(image) for image in images]
    hashes, thumbnails = np.array([h for h, _ in looks]), np.stack([t for _, t in looks])
    assert duplicates.near(hashes, thumbnails) == [[3, 60], [7, 61], [9, 62, 63]]


def test_equal_hashes_of_different_images_are_distinguished() -> None:
    greys = [Image.new("RGB", (20, 20), (level,) * 3) for level in (0, 60, 120, 121)]
    looks = [duplicates.appearance(image) for image in greys]
    assert len({int(h) for h, _ in looks}) == 1
    result = duplicates.near(np.array([h for h, _ in looks]), np.stack([t for _, t in looks]))
    assert result == [[2, 3]]


@pytest.mark.parametrize("seed", range(5))
def test_every_pair_within_three_bits_is_a_candidate(seed: int) -> None:
    """Against all with all; a few bits of random hashes are flipped to make close ones."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 2**63, 80, dtype=np.uint64)
    close = hashes[rng.integers(0, 80, 80)].copy()
    for _ in range(3):
        close ^= np.uint64(1) << rng.integers(0, 64, 80, dtype=np.uint64)
    close[:40] ^= np.uint64(1) << rng.integers(0, 64, 40, dtype=np.uint64)  # four bits: too far
    hashes = np.unique(np.concatenate([hashes, close]))
    rng.shuffle(hashes)
    expected = {
        (i, j)
        for i in range(len(hashes))
        for j in range(i + 1, len(hashes))
        if int(hashes[i] ^ hashes[j]).bit_count() <= duplicates.MAX_BITS
    }
    left, right = duplicates._candidates(hashes)
    assert set(zip(left.tolist(), right.tolist(), strict=True)) == expected
    assert len(expected) > 10
