"""`cars196`: Stanford Cars; classes 1 to 98 train, 99 to 196 are tested.

Source   J. Krause et al., 3D Object Representations for Fine-Grained Categorization, 3dRR 2013
Layouts  `cars_annos.mat` with `car_ims/`; or `cars_train/` and `cars_test/` with the annotations
         of the devkit (`cars_train_annos.mat`, `cars_test_annos_withlabels.mat`); or class folders
         (`AM General Hummer SUV 2000` ...) in the root, in `images`, or copied into `train` and
         `test`, which are then merged. Folder names, sorted, have the official halves.

The official division into training and test images shares classes and is not used.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.data.base import Columns
from unseen.data.benchmarks.benchmark import Benchmark, Counts, Listing, listing_of_folders
from unseen.data.benchmarks.layouts import below, class_folders

_UNPACKED = ("devkit", "stanford_cars", "stanford_cars/devkit", "car_devkit/devkit")
_TRAINED = 98  # classes 1 to 98
_WHOLE, _TRAIN = "cars_annos.mat", "cars_train_annos.mat"
_TEST = "cars_test_annos_withlabels.mat"


class Cars196(Benchmark):
    """root: where it was unpacked, or the folder above."""

    title = "Cars196 (Stanford Cars)"
    layout = (
        f"car_ims/ and {_WHOLE}, or cars_train/, cars_test/, {_TRAIN} and {_TEST} of the devkit, "
        "or 196 class folders"
    )
    source = "the page Cars Dataset of Stanford's AI laboratory"
    expected = Counts(train_classes=98, train=8_054, test_classes=98, test=8_131)
    known_classes = frozenset({"AM General Hummer SUV 2000", "Eagle Talon Hatchback 1998"})

    @classmethod
    def recognises(cls, root: Path) -> bool:
        listed = [below(root, file, _UNPACKED) for file in (_WHOLE, _TRAIN)]
        return any(listed) or cls.class_folders_of_it(root) >= cls.expected.classes

    def listing(self, root: Path) -> Listing:
        if whole := below(root, _WHOLE, _UNPACKED):
            matrix = _matrix(whole)
            cars = _fields(matrix, whole, "relative_im_path", "class")
            paths = [whole.parent / str(path) for path in cars["relative_im_path"]]
            return _listing(paths, cars["class"], matrix)
        if train := below(root, _TRAIN, _UNPACKED):
            return _from_devkit(root, train)
        folders = class_folders(root)
        return listing_of_folders(folders, list(folders)[:_TRAINED])

    def absent(self, paths: Sequence[Path]) -> list[str]:
        """The images of `car_ims` are numbered through; class folders made of it keep that."""
        numbers = {int(path.stem) for path in paths if path.stem.isdecimal()}
        last = self.expected.train + self.expected.test
        if len(numbers) < len(paths) or max(numbers) > last:
            return []
        return [f"{number:06d}.jpg" for number in range(1, last + 1) if number not in numbers]


def _from_devkit(root: Path, train: Path) -> Listing:
    test = below(root, _TEST, _UNPACKED)
    if test is None:
        raise ValueError(f"{_TEST} is missing (the devkit's own list of test cars has no classes)")
    place = below(root, "cars_train", _UNPACKED)
    images = place.parent if place else root
    paths: list[Path] = []
    classes = []
    for file, folder in ((train, "cars_train"), (test, "cars_test")):
        cars = _fields(_matrix(file), file, "fname", "class")
        paths += [images / folder / str(name) for name in cars["fname"]]
        classes.append(cars["class"])
    meta = below(root, "cars_meta.mat", _UNPACKED)
    return _listing(paths, np.concatenate(classes), _matrix(meta) if meta else {})


def _listing(paths: list[Path], classes: NDArray[Any], matrix: dict[str, Any]) -> Listing:
    numbers = [int(number) for number in classes]
    names = [str(name) for name in np.atleast_1d(matrix.get("class_names", []))]
    parts = ["train" if number <= _TRAINED else "test" for number in numbers]
    called = {str(number): name for number, name in enumerate(names, start=1)}
    return Listing(paths, Columns(numbers, split=parts), called)


def _matrix(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat  # noqa: PLC0415 - only this layout needs it

    try:
        matrix: dict[str, Any] = loadmat(file, squeeze_me=True)
    except Exception as error:  # a damaged file fails in many ways inside scipy
        raise ValueError(f"{file} is not a whole .mat file: {error}") from error
    return matrix


def _fields(matrix: dict[str, Any], file: Path, *names: str) -> dict[str, NDArray[Any]]:
    cars = np.atleast_1d(matrix.get("annotations", np.empty(0)))
    lacking = [name for name in names if name not in (cars.dtype.names or ())]
    if lacking:
        raise ValueError(f"{file} has no annotations with {', '.join(lacking)}")
    return {name: cars[name] for name in names}
