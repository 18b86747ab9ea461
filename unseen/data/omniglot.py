"""`omniglot`: handwritten characters of 50 alphabets; background trains, evaluation is tested.

Source   B. M. Lake et al., Human-level concept learning through probabilistic program induction,
         Science 2015
Layout   `images_background/<alphabet>/<character>/*.png` and `images_evaluation/...`
Labels   the character; `alphabet` is the level above it, and judged by as well.
"""

from pathlib import Path

from unseen.data.base import Columns
from unseen.data.official.benchmark import Benchmark, Counts, Listing
from unseen.data.official.layouts import below
from unseen.data.pictures.files import pictures_in

_PARTS = {"images_background": "train", "images_evaluation": "test"}
_UNPACKED = ("python", "omniglot", "omniglot-py", "omniglot/python")


class Omniglot(Benchmark):
    """root: where it was unpacked, or the folder above."""

    title = "Omniglot"
    layout = "images_background/ and images_evaluation/, each <alphabet>/<character>/*.png"
    source = "the repository brendenlake/omniglot"
    expected = Counts(train_classes=964, train=19_280, test_classes=659, test=13_180)

    @classmethod
    def recognises(cls, root: Path) -> bool:
        return any(below(root, part, _UNPACKED) for part in _PARTS)

    def listing(self, root: Path) -> Listing:
        paths: list[Path] = []
        split: list[str] = []
        for folder, part in _PARTS.items():
            place = below(root, folder, _UNPACKED)
            if place is None:
                raise ValueError(f"{folder} is missing")
            found = pictures_in(place)
            paths += found
            split += [part] * len(found)
        alphabets = [path.parent.parent.name for path in paths]
        labels = [f"{path.parent.parent.name}/{path.parent.name}" for path in paths]
        columns = Columns(labels, split=split, more={"alphabet": alphabets}, levels=["alphabet"])
        return Listing(paths, columns)
