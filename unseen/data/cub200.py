"""`cub200`: CUB-200-2011, birds; classes 1 to 100 train, 101 to 200 are tested.

Source   C. Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, 2011
Layouts  the original (`images.txt`, `image_class_labels.txt`, `images/`), or class folders
         (`001.Black_footed_Albatross` ...) in the root, in `images`, or copied into `train` and
         `test`, which are then merged.

The official `train_test_split.txt` shares classes between its parts and is not used.
"""

import re
from pathlib import Path

from unseen.data.base import Columns
from unseen.data.benchmarks.benchmark import Benchmark, Counts, Listing, listing_of_folders
from unseen.data.benchmarks.layouts import below, class_folders, rows

_UNPACKED = ("CUB_200_2011",)
_TRAINED = 100  # classes 1 to 100
_NUMBERED = re.compile(r"(\d{3})\..+")


class Cub200(Benchmark):
    """root: where it was unpacked, or the folder above."""

    title = "CUB-200-2011"
    layout = (
        "images.txt, image_class_labels.txt and images/, or 200 folders 001.<name> to 200.<name>"
    )
    source = "the page Caltech-UCSD Birds-200-2011 of Caltech Vision"
    expected = Counts(train_classes=100, train=5_864, test_classes=100, test=5_924)
    known_classes = frozenset({"001.Black_footed_Albatross", "200.Common_Yellowthroat"})

    @classmethod
    def recognises(cls, root: Path) -> bool:
        listed = below(root, "image_class_labels.txt", _UNPACKED)
        return listed is not None or cls.class_folders_of_it(root) >= cls.expected.classes

    def listing(self, root: Path) -> Listing:
        listed = below(root, "image_class_labels.txt", _UNPACKED)
        return _from_lists(listed.parent) if listed else _from_folders(root)


def _from_lists(root: Path) -> Listing:
    files = dict(rows(root / "images.txt", 2))
    classes = dict(rows(root / "image_class_labels.txt", 2))
    if files.keys() != classes.keys():
        raise ValueError("images.txt and image_class_labels.txt do not name the same images")
    numbers = [int(classes[image]) for image in files]
    names = {}
    if (root / "classes.txt").exists():
        names = dict(rows(root / "classes.txt", 2))
    paths = [root / "images" / file for file in files.values()]
    split = ["train" if number <= _TRAINED else "test" for number in numbers]
    return Listing(paths, Columns(numbers, split=split), names)


def _from_folders(root: Path) -> Listing:
    result = class_folders(root)
    strange = [name for name in result if not _NUMBERED.fullmatch(name)]
    if strange:
        raise ValueError(f"folder {strange[0]!r} is no class: expected names like 001.<name>")
    return listing_of_folders(result, {name for name in result if int(name[:3]) <= _TRAINED})
