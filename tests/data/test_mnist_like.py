"""IDX files, plain and gzipped: bytes as the originals have them; damaged files are named."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from unseen.config import find_data
from unseen.core.contracts import PixelDataset
from unseen.data.mnist_like import MnistLike

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8)
LABELS = np.tile(np.arange(10, dtype=np.uint8), 3)


def images(pixels: np.ndarray) -> bytes:
    return struct.pack(">IIII", 2051, *pixels.shape) + pixels.tobytes()


def labels(numbers: np.ndarray) -> bytes:
    return struct.pack(">II", 2049, len(numbers)) + numbers.tobytes()


def files(prefix: str = "") -> dict[str, bytes]:
    return {
        f"{prefix}train-images-idx3-ubyte": images(PIXELS[:20]),
        f"{prefix}train-labels-idx1-ubyte": labels(LABELS[:20]),
        f"{prefix}t10k-images-idx3-ubyte": images(PIXELS[20:]),
        f"{prefix}t10k-labels-idx1-ubyte": labels(LABELS[20:]),
    }


def put(folder: Path, held: dict[str, bytes], packed: bool = False) -> Path:
    for name, content in held.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("prefix", ["", "emnist-digits-"])
def test_all_images_by_class(tmp_path: Path, packed: bool, prefix: str) -> None:
    put(tmp_path, files(prefix).copy(), packed)
    assert find_data.data_name(tmp_path) == "mnist_like"
    dataset = MnistLike(tmp_path)
    assert isinstance(dataset, PixelDataset)
    assert np.array_equal(dataset.arrays(), PIXELS)
    assert np.array_equal(dataset.labels, LABELS)
    assert dataset.official_test_classes.tolist() == [5, 6, 7, 8, 9]
    assert np.array_equal(np.asarray(dataset.image(7))[..., 0], PIXELS[7])
    assert dataset.describe()["items"] == 30


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = MnistLike(put(tmp_path / "a", files(), packed=True)).fingerprint()
    other = files() | {"t10k-labels-idx1-ubyte": labels(LABELS[20:][::-1])}
    assert MnistLike(put(tmp_path / "b", files())).fingerprint() == one
    assert MnistLike(put(tmp_path / "b", other)).fingerprint() != one


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", images(PIXELS[:20])[:-1], "20 x 28 x 28 bytes, but 15,679"),
        ("train-images-idx3-ubyte", images(PIXELS[:20])[:9], "no IDX file of images"),
        (
            "train-images-idx3-ubyte",
            labels(LABELS),
            "no IDX file of images: it begins with 00000801",
        ),
        ("train-images-idx3-ubyte", b"", "no IDX file of images"),
        ("t10k-labels-idx1-ubyte", labels(LABELS), "10 images but 30 labels in its t10k"),
        ("t10k-images-idx3-ubyte", images(PIXELS[20:, :20]), "differ in size"),
        ("letters-t10k-images-idx3-ubyte", images(PIXELS[20:]), "2 sets of t10k images"),
    ],
)
def test_damaged(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    put(tmp_path, files() | {name: content})
    with pytest.raises(ValueError, match=message):
        MnistLike(tmp_path)


def test_missing_and_cut_files(tmp_path: Path) -> None:
    put(tmp_path, files(), packed=True)
    file = tmp_path / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"not a whole \.gz file"):
        MnistLike(tmp_path)
    file.unlink()
    with pytest.raises(ValueError, match=r"has no t10k images; expected .*Fashion-MNIST"):
        MnistLike(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        MnistLike(tmp_path / "none")
