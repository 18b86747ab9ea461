"""`online_products`: Stanford Online Products; official lists of training and test products.

Source   H. O. Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016,
         https://arxiv.org/abs/1511.06452
Layout   `Ebay_train.txt` and `Ebay_test.txt` (`image_id class_id super_class_id path`) beside the
         folders `bicycle_final` ...; lists may stand in `Info_Files`, images in `images`.
Labels   the product; `super_class` is the level above it (evaluated by with `relevance.by`).
"""

from pathlib import Path

from unseen.data.base import Columns
from unseen.data.benchmarks.benchmark import Benchmark, Counts, Listing
from unseen.data.benchmarks.layouts import below, needed, rows

_UNPACKED = ("Stanford_Online_Products", "Info_Files", "Stanford_Online_Products/Info_Files")
_TRAIN, _TEST = "Ebay_train.txt", "Ebay_test.txt"


class OnlineProducts(Benchmark):
    """root: where it was unpacked, or the folder above."""

    title = "Stanford Online Products"
    layout = f"{_TRAIN}, {_TEST} and the folders bicycle_final/ ... toaster_final/"
    source = (
        "the page Deep Metric Learning via Lifted Structured Feature Embedding of Stanford CVGL"
    )
    expected = Counts(train_classes=11_318, train=59_551, test_classes=11_316, test=60_502)

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return any(below(root, file, _UNPACKED) for file in (_TRAIN, _TEST))

    def listing(self, root: Path) -> Listing:
        files: list[str] = []
        classes: list[int] = []
        groups: list[str] = []
        split: list[str] = []
        for file, split_name in ((_TRAIN, "train"), (_TEST, "test")):
            listed = rows(needed(root, file, _UNPACKED), 4, skip=1)
            files += [path for *_, path in listed]
            classes += [int(number) for _, number, _, _ in listed]
            groups += [path.split("/")[0].removesuffix("_final") for *_, path in listed]
            split += [split_name] * len(listed)
        images = _images(root, files)
        columns = Columns(
            classes, split=split, more={"super_class": groups}, levels=["super_class"]
        )
        return Listing([images / file for file in files], columns)


def _images(root: Path, files: list[str]) -> Path:
    """Where the folders of the super classes stand."""
    places = ("images", "Stanford_Online_Products", "Stanford_Online_Products/images")
    result = below(root, files[0].split("/")[0], places) if files else None
    return result.parent if result else root
