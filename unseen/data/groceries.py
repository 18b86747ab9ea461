"""`groceries`: products photographed in stores; every other one is tested, photographs ask for the
shop's own image.

Source   M. Klasson et al., A Hierarchical Grocery Store Image Dataset with Visual and Semantic
         Labels, WACV 2019, https://arxiv.org/abs/1901.00711
Layout   `classes.csv`, `train.txt`, `val.txt` and `test.txt` beside `train/`, `val/`, `test/` and
         `iconic-images-and-descriptions/`, in the root or in `dataset`.
Labels   the product, 81 of them; `coarse` (apple, milk: 43, the paper says 42) and `kind` (fruit,
         packages, vegetables) are the levels of its hierarchy.
Parts    the authors' parts share their products, so all their photographs are taken together:
         products with an even number train, those with an odd one are tested (our choice: siblings
         of a coarse class stand on both sides). Photographs ask, the one iconic image of each
         product answers; in training an iconic image is an image as any other.
"""

import csv
from pathlib import Path

from unseen.data.base import Columns
from unseen.data.benchmarks.benchmark import Benchmark, Counts, Listing
from unseen.data.benchmarks.layouts import below, needed

_LISTS = ("train.txt", "val.txt", "test.txt")
_COLUMNS = ("Class Name (str)", "Class ID (int)", "Coarse Class Name (str)")
_ICONIC = "Iconic Image Path (str)"
_UNPACKED = ("dataset", "GroceryStoreDataset/dataset")


class Groceries(Benchmark):
    """root: where it was unpacked, or the folder above."""

    title = "the Grocery Store Dataset"
    layout = "classes.csv, train.txt, val.txt and test.txt with the folders they name"
    source = "the repository marcusklasson/GroceryStoreDataset"
    expected = Counts(
        train_classes=41, train=2_822, test_classes=40, test=2_680, query=2_640, gallery=40
    )

    @classmethod
    def recognises(cls, root: Path) -> bool:
        listed = below(root, "classes.csv", _UNPACKED)
        return listed is not None and (listed.parent / "iconic-images-and-descriptions").is_dir()

    def listing(self, root: Path) -> Listing:
        file = needed(root, "classes.csv", _UNPACKED)
        with file.open(newline="", encoding="utf-8") as read:
            products = list(csv.DictReader(read))
        known = {int(row[_COLUMNS[1]]): row for row in products}
        photographs = [row for name in _LISTS for row in _listed(file.parent / name)]
        iconic = [(row[_ICONIC].strip("/"), number) for number, row in known.items()]
        places, numbers = zip(*photographs, *iconic, strict=True)
        names, coarse = ([known[n][column] for n in numbers] for column in _COLUMNS[::2])
        is_photograph = [place < len(photographs) for place in range(len(places))]
        columns = Columns(
            names,
            split=["test" if number % 2 else "train" for number in numbers],
            query=is_photograph,
            gallery=[not photographed for photographed in is_photograph],
            more={"coarse": coarse, "kind": [Path(place).parts[1] for place in places]},
            levels=("kind", "coarse"),
        )
        return Listing([file.parent / place for place in places], columns)


def _listed(file: Path) -> list[tuple[str, int]]:
    """Paths and the numbers of their products."""
    result = []
    with file.open(newline="", encoding="utf-8") as read:
        for line, row in enumerate(csv.reader(read, skipinitialspace=True), start=1):
            if len(row) != 3:
                raise ValueError(f"{file}, line {line}: expected 3 columns, got {len(row)}")
            result.append((row[0], int(row[1])))
    return result
