"""`packed`: a copy of a data set in one file, made by `unseen data pack`, read at a multiple of the
rate of separate pictures.

Classes, official split, queries, gallery, groups and further labels are those of the source.
Pictures come with their short side reduced: a crop shows the same part of a picture as from the
source, small crops are softer. Each picture's checksum is compared when it is first read; a damaged
one is an error that names it, and a run goes on as with any file that breaks.
"""

import hashlib
from pathlib import Path
from typing import Any

from PIL import Image

from unseen.contracts import IntArray, Progress
from unseen.data.base import INCOMPLETE, class_counts, lacking, lone_classes
from unseen.data.pictures.crops import Loaded, Picture
from unseen.data.pictures.decode import PictureFile
from unseen.data.pictures.item_digests import numbered
from unseen.data.pictures.pack import Pack, is_pack
from unseen.names import near_path


class Packed:
    """root: the file."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.exists():
            raise FileNotFoundError(f"no such file: {root}{near_path(root)}")
        self._pack = pack = Pack(self.root)
        self.name = str(pack.header["name"])
        self.labels: IntArray = pack.arrays["labels"]
        self.label_names = pack.arrays["label_names"].tolist()
        self.official_test_classes: IntArray | None = pack.arrays.get("test_classes")
        self.annotations = pack.annotations()

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return is_pack(root)

    def __len__(self) -> int:
        return len(self.labels)

    def opened(self, index: int) -> Picture:
        payload = self._pack.payload(index)
        if self._pack.is_raw:
            width, height = self._pack.size(index)
            return Loaded(payload.reshape(height, width, 3))
        return PictureFile(payload.tobytes(), name=self._pack.name(index))

    def picture(self, index: int) -> Image.Image:
        with self.opened(index) as picture:
            return Image.fromarray(picture.pixels())

    def item_ids(self) -> list[str]:
        """Those of the source."""
        return numbered(self._pack.arrays["names"].tolist())

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """Of the file a picture was packed from, and of what was packed."""
        packed = self._pack.records[:, 1:5]  # width, height, length, checksum
        sources = self._pack.arrays["digests"]
        pairs = zip(sources, packed, strict=True)
        return [hashlib.sha256(one.tobytes() + two.tobytes()).digest() for one, two in pairs]

    def describe(self) -> dict[str, Any]:
        counts = class_counts(self.labels, self.label_names) | lone_classes(
            self.labels, self.label_names
        )
        return (
            counts
            | {"short side": int(self._pack.header["short_side"])}
            | lacking(str(self._pack.header.get(INCOMPLETE, "")))
        )

    def fingerprint(self) -> str:
        """Of the index, which holds a checksum of every picture."""
        return self._pack.index_digest.hex()
