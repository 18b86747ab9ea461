"""`inshop`: In-Shop Clothes Retrieval of DeepFashion; queries ask a gallery of the same items.

Source   Z. Liu et al., DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich
         Annotations, CVPR 2016
Layout   `list_eval_partition.txt` (in the root, `Eval` or `Anno`) beside `img/`; its first line
         counts the images, its second names the columns `image_name item_id evaluation_status`.
Labels   the item. Some training items have one image only: they are not trained on.
"""

from pathlib import Path

from unseen.data.base import Columns
from unseen.data.benchmarks.benchmark import Benchmark, Counts, Listing
from unseen.data.benchmarks.layouts import below, needed, rows

_LIST = "list_eval_partition.txt"
_UNPACKED = ("Eval", "Anno", "In-shop Clothes Retrieval Benchmark", "inshop")
_HEADER = ["image_name", "item_id", "evaluation_status"]
_STATUS = ("train", "query", "gallery")


class Inshop(Benchmark):
    """root: where it was unpacked, or the folder above."""

    title = "In-Shop Clothes Retrieval"
    layout = f"{_LIST} and img/"
    source = "the page DeepFashion: In-shop Clothes Retrieval of the Multimedia Laboratory, CUHK"
    expected = Counts(
        train_classes=3_997,
        train=25_882,
        test_classes=3_985,
        test=26_830,
        query=14_218,
        gallery=12_612,
    )

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return below(root, _LIST, _UNPACKED) is not None

    def listing(self, root: Path) -> Listing:
        file = needed(root, _LIST, _UNPACKED)
        head = [line.split() for line in file.read_text(encoding="utf-8").splitlines()[:2]]
        if len(head) < 2 or len(head[0]) != 1 or not head[0][0].isdigit() or head[1] != _HEADER:
            raise ValueError(f"{file} must begin with a count and the line {' '.join(_HEADER)}")
        listed = rows(file, 3, skip=2)
        if len(listed) != int(head[0][0]):
            raise ValueError(f"{file} announces {head[0][0]} images and lists {len(listed)}")
        status = [word for *_, word in listed]
        if strange := set(status) - set(_STATUS):
            raise ValueError(f"{file}: evaluation_status must be one of {_STATUS}, got {strange}")
        images = _images(root, file)
        columns = Columns(
            [item for _, item, _ in listed],
            split=["train" if word == "train" else "test" for word in status],
            query=[word == "query" for word in status],
            gallery=[word == "gallery" for word in status],
        )
        return Listing([images / path for path, *_ in listed], columns)


def _images(root: Path, file: Path) -> Path:
    """The folder that holds `img`."""
    for place in (file.parent, file.parent.parent, root):
        result = below(place, "img", ("Img",))
        if result is not None:
            return result.parent
    return file.parent
