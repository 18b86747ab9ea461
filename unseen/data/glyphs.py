"""`glyphs`: a data set without a download, drawn from the typefaces inside matplotlib.

A class is a character (with whatever looks like it, so labels are never ambiguous), an image one
face of it under random placement, turn, slant, stroke, greys, clutter and noise:
`images/characters.py` says which characters, `images/distort.py` how they are treated. Half
of the classes, the same half whatever the seed and the size, is set aside for testing; scripts
are mixed over both halves.

The first use draws everything (some seconds) and keeps it on disk; later uses read the file back.
The same arguments give the same images byte for byte, whether drawn or read.
"""

import hashlib
import inspect
import json
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import features

from unseen.core.contracts import Annotations, Progress
from unseen.data.base import Described, PixelItems
from unseen.data.images import array_files, characters, distort

_ORDER_SEED = (
    1789  # shuffles the classes once and for all: which are tested is part of the data set
)


class Glyphs(PixelItems):
    """Characters of many scripts, drawn with the fonts that matplotlib brings: a data set that
    needs no download.

    Args:
        size: Side in pixels.
        seed: Of the distortions.
        images_per_face: Images of a class in each face that draws it.
        max_classes: The first so many of a fixed shuffle, for quick trials and tests.
        cache_dir: Where drawn characters are kept; None: in the cache of `unseen`.
        progress: Called with the characters drawn and their number.

    Example:
        >>> from unseen.data import Glyphs
        >>> len(set(Glyphs(size=16, max_classes=3).labels.tolist()))
        3
    """

    def __init__(
        self,
        size: int = 40,
        seed: int = 0,
        images_per_face: int = 1,
        *,
        max_classes: int | None = None,
        cache_dir: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        if not 16 <= size <= 256:
            raise ValueError(f"size must be between 16 and 256 pixels, got {size}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        if images_per_face < 1:
            raise ValueError(f"images_per_face must be at least 1, got {images_per_face}")
        if max_classes is not None and max_classes < 4:
            raise ValueError(f"max_classes must be at least 4 or None, got {max_classes}")
        self.size, self.seed = size, seed
        self.images_per_face, self.max_classes = images_per_face, max_classes

        path = (cache_dir or array_files.cache_folder()) / f"glyphs-{self._key()}.npz.sha256"
        arrays = array_files.load(path)
        if arrays is None:
            arrays = self._draw(progress)
            with suppress(OSError):  # a read-only home costs a drawing each time, not the run
                array_files.save(path, arrays)
        names = arrays["label_names"].tolist()
        metadata = Described(arrays["labels"], names, arrays["test_classes"], Annotations())
        super().__init__(arrays["pixels"], "glyphs", metadata)
        self._ids: list[str] = arrays["ids"].tolist()

    def item_ids(self) -> list[str]:
        """Character, face, number of the image."""
        return list(self._ids)

    def describe(self) -> dict[str, Any]:
        classes = self.official_test_classes
        members = sum(len(name.split()) for name in self.label_names)
        return super().describe() | {
            "test classes": 0 if classes is None else len(classes),
            "faces": len(characters.FACES),
            "characters": members,
            "merged look-alikes": members - len(self.label_names),
        }

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self._pixels.tobytes())
        digest.update(self.labels.tobytes())
        digest.update(json.dumps(self.label_names).encode())
        return digest.hexdigest()

    def _key(self) -> str:
        """Changes with everything that could change a pixel, our own code included."""
        faces = hashlib.sha256()
        for face in characters.FACES:
            faces.update(characters.face_path(face).read_bytes())
        parts = [
            [self.size, self.seed, self.images_per_face, self.max_classes, _ORDER_SEED],
            [matplotlib.__version__, PIL.__version__, features.version("freetype2")],
            [np.__version__, unicodedata.unidata_version, faces.hexdigest()],
            [inspect.getsource(characters), inspect.getsource(distort)],
            inspect.getsource(Glyphs._draw),
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    def _draw(self, progress: Progress | None) -> dict[str, NDArray[Any]]:
        groups = characters.alike()
        order = np.random.default_rng(_ORDER_SEED).permutation(len(groups))[: self.max_classes]
        classes = np.sort(order)
        pixels, labels, ids = [], [], []
        for label, group in enumerate(groups[c] for c in classes):
            for place, face in enumerate(characters.FACES):
                codes = [code for code in group if code in characters.covered(face)]
                for copy in range(self.images_per_face if codes else 0):
                    rng = np.random.default_rng((self.seed, group[0], place, copy))
                    drawing = characters.drawing(codes[rng.integers(len(codes))], face)
                    if drawing is not None:
                        pixels.append(distort.distort(drawing, self.size, rng))
                        labels.append(label)
                        ids.append(f"{group[0]:04x}/{face}/{copy}")
            if progress:
                progress(label + 1, len(classes))
        names = [" ".join(map(chr, groups[c])) for c in classes]
        return {
            "pixels": np.stack(pixels),
            "labels": np.array(labels, dtype=np.int64),
            "label_names": np.array(names),
            "ids": np.array(ids),
            # Every other class of the shuffle: a character keeps its half whatever max_classes is.
            "test_classes": np.sort(np.searchsorted(classes, order[1::2])).astype(np.int64),
        }
