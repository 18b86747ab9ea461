"""`omniglot`: handwritten characters of 50 alphabets; background trains, evaluation is tested.

Source   B. M. Lake et al., Human-level concept learning through probabilistic program induction,
         Science 2015
Layout   `images_background/<alphabet>/<character>/*.png` and `images_evaluation/...`
Labels   the character; `alphabet` is the level above it, and evaluated by as well.
"""

from pathlib import Path

from unseen.data.base import Columns
from unseen.data.benchmarks.benchmark import Benchmark, Counts, Listing
from unseen.data.benchmarks.layouts import below, needed
from unseen.data.images.image_files import images_in

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
        return any(below(root, split_name, _UNPACKED) for split_name in _PARTS)

    def listing(self, root: Path) -> Listing:
        paths: list[Path] = []
        split: list[str] = []
        for folder, split_name in _PARTS.items():
            result = images_in(needed(root, folder, _UNPACKED))
            paths += result
            split += [split_name] * len(result)
        alphabets = [path.parent.parent.name for path in paths]
        labels = [f"{path.parent.parent.name}/{path.parent.name}" for path in paths]
        columns = Columns(labels, split=split, more={"alphabet": alphabets}, levels=["alphabet"])
        return Listing(paths, columns)
