"""`mnist_like`: digits, letters or clothes in IDX files, also gzipped.

The first half of the classes trains, the second is tested (0 to 4 and 5 to 9).

Source   Y. LeCun et al., Gradient-Based Learning Applied to Document Recognition, Proc. IEEE 1998;
         the halves as in the code of HORDE (P. Jacob et al., ICCV 2019)
Layout   `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`,
         `t10k-labels-idx1-ubyte`, each perhaps with `.gz`; also with a prefix (EMNIST's). Training
         and test images share classes: they are put together and divided by class.
"""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unseen.core.names import near_path
from unseen.data.base import Columns, PixelItems, described

_TRAIN, _TEST = ("train",), ("t10k", "test")
_BYTES = 8  # the IDX code of unsigned bytes


class MnistLike(PixelItems):
    """The four files of MNIST, Fashion-MNIST, KMNIST and their like.

    Args:
        root: The folder of the four files, packed (.gz) or not.

    Example:
        >>> from unseen.data import MnistLike
        >>> MnistLike("path/to/mnist").labels  # doctest: +SKIP
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"no such folder: {root}{near_path(root) or f'; {_ADVICE}'}")
        pixels, labels = [], []
        for words in (_TRAIN, _TEST):
            images, numbers = (_idx(_find(self.root, words, kind), kind) for kind in _KINDS)
            if len(images) != len(numbers):
                raise ValueError(
                    f"{root}: {len(images):,} images but {len(numbers):,} labels in its "
                    f"{words[0]} files; {_ADVICE}"
                )
            pixels.append(images)
            labels.append(numbers)
        if pixels[0].shape[1:] != pixels[1].shape[1:]:
            raise ValueError(f"{root}: training and test images differ in size; {_ADVICE}")
        metadata = described(Columns(np.concatenate(labels)), str(root))
        super().__init__(np.concatenate(pixels), self.root.resolve().name, metadata)
        classes = np.arange(len(metadata.label_names))
        self.official_test_classes = classes[len(classes) // 2 :]

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether a folder holds such files, be they all there or not."""
        return any(root.glob("*train-images*idx3-ubyte*"))

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self._pixels.tobytes())
        digest.update(repr(self._pixels.shape).encode() + self.labels.tobytes())
        return digest.hexdigest()


_KINDS = {"images": 3, "labels": 1}  # and how many dimensions their arrays have
_ADVICE = (
    "expected train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, perhaps with .gz, as the pages of MNIST, Fashion-MNIST, KMNIST and "
    "EMNIST give them"
)


def _find(root: Path, words: tuple[str, ...], kind: str) -> Path:
    patterns = [f"*{word}-{kind}*idx{_KINDS[kind]}-ubyte*" for word in words]
    result = sorted(path for pattern in patterns for path in root.glob(pattern))
    plain = {path.name.removesuffix(".gz") for path in result}
    if len(plain) != 1:
        what = f"has {len(plain)} sets of" if plain else "has no"
        raise ValueError(f"{root} {what} {words[0]} {kind}; {_ADVICE}")
    return result[0]  # unpacked before packed


def _idx(path: Path, kind: str) -> NDArray[np.uint8]:
    """The array of an IDX file: two zeros, the type, the number of dimensions, their sizes."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a whole .gz file: {error}") from error
    dimensions = _KINDS[kind]
    head = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, _BYTES, dimensions]) or len(content) < head:
        raise ValueError(f"{path} is no IDX file of {kind}: it begins with {content[:4].hex()}")
    sizes = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) - head != int(np.prod(sizes, dtype=np.int64)):
        raise ValueError(
            f"{path} announces {' x '.join(map(str, sizes))} bytes, "
            f"but {len(content) - head:,} follow"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(sizes)
