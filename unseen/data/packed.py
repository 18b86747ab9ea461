"""`packed`: a copy of a data set in one file, made by `unseen data pack`, read at a multiple of the
rate of separate images.

Classes, official split, queries, gallery, groups and further labels are those of the source.
Images come with their short side reduced: a crop shows the same part of an image as from the
source, small crops are softer. Each image's checksum is compared when it is first read; a damaged
one is an error that names it, and a run goes on as with any file that breaks.
"""

import hashlib
from pathlib import Path
from typing import Any

from PIL import Image

from unseen.core.contracts import Progress
from unseen.core.names import near_path
from unseen.data.base import INCOMPLETE, Described, Items
from unseen.data.images.crops import LazyImage, Loaded
from unseen.data.images.decode import SafeImageFile
from unseen.data.images.item_digests import numbered
from unseen.data.images.packed_file import Pack, is_pack


class Packed(Items):
    """Images in one file, decoded and made smaller beforehand by `unseen data pack`.

    Args:
        root: The file.

    Example:
        >>> from unseen.data import Packed
        >>> Packed("photos.pack").label_names  # doctest: +SKIP
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.exists():
            raise FileNotFoundError(f"no such file: {root}{near_path(root)}")
        self._pack = pack = Pack(self.root)
        labels, names = pack.arrays["labels"], pack.arrays["label_names"].tolist()
        metadata = Described(labels, names, pack.arrays.get("test_classes"), pack.annotations())
        super().__init__(pack.header["name"], metadata, str(pack.header.get(INCOMPLETE, "")))

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return is_pack(root)

    def opened(self, index: int) -> LazyImage:
        payload = self._pack.payload(index)
        if self._pack.is_raw:
            width, height = self._pack.size(index)
            return Loaded(payload.reshape(height, width, 3))
        return SafeImageFile(payload.tobytes(), name=self._pack.name(index))

    def image(self, index: int) -> Image.Image:
        with self.opened(index) as image:
            return Image.fromarray(image.pixels())

    def item_ids(self) -> list[str]:
        """Those of the source."""
        return numbered(self._pack.arrays["names"].tolist())

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        """Of the file an image was packed from, and of what was packed."""
        packed = self._pack.records[:, 1:5]  # width, height, length, checksum
        sources = self._pack.arrays["digests"]
        pairs = zip(sources, packed, strict=True)
        return [hashlib.sha256(one.tobytes() + two.tobytes()).digest() for one, two in pairs]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"short side": int(self._pack.header["short_side"])}

    def fingerprint(self) -> str:
        """Of the index, which holds a checksum of every image."""
        return self._pack.index_digest.hex()
