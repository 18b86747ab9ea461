"""Known benchmarks: where their lists lie, and which images, labels and parts these name."""

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen.data.base import Columns
from unseen.data.benchmarks.benchmark import (
    Benchmark,
    Counts,
    Listing,
    class_folders,
    listing_of_folders,
    rows,
)
from unseen.data.images.image_files import images_in

_STATUS = ("train", "query", "gallery")  # of In-Shop's images


class Cars196(Benchmark):
    """`cars196`: Stanford Cars; classes 1 to 98 train, 99 to 196 are tested.

    Source   J. Krause et al., 3D Object Representations for Fine-Grained Categorization, 3dRR 2013
    Layouts  `cars_annos.mat` with `car_ims/`; or `cars_train/` and `cars_test/` with the
             annotations of the devkit (`cars_train_annos.mat`, `cars_test_annos_withlabels.mat`);
             or class folders (`AM General Hummer SUV 2000` ...) in the root, in `images`, or copied
             into `train` and `test`, which are then merged. Folder names, sorted, have the official
             halves.

    The official division into training and test images shares classes and is not used.

    Args:
        root: where it was unpacked, or the folder above.
        incomplete: a copy that lacks images is taken as it is.
        progress: called with the images looked for and their number.

    Example:
        >>> from unseen.data import Cars196
        >>> Cars196("path/to/cars196").labels  # doctest: +SKIP
    """

    title = "Cars196 (Stanford Cars)"
    layout = (
        "car_ims/ and cars_annos.mat, or cars_train/, cars_test/, cars_train_annos.mat and "
        "cars_test_annos_withlabels.mat of the devkit, or 196 class folders"
    )
    source = "the page Cars Dataset of Stanford's AI laboratory"
    expected = Counts(train_classes=98, train=8_054, test_classes=98, test=8_131)
    lists = ("cars_annos.mat", "cars_train_annos.mat")
    unpacked = ("devkit", "stanford_cars", "stanford_cars/devkit", "car_devkit/devkit")
    known_classes = frozenset({"AM General Hummer SUV 2000", "Eagle Talon Hatchback 1998"})
    trained = 98  # classes 1 to 98

    def listing(self, root: Path) -> Listing:
        if whole := self.below(root, "cars_annos.mat"):
            matrix = _matrix(whole)
            cars = _annotated(matrix, whole, "relative_im_path", "class")
            paths = [whole.parent / str(path) for path in cars["relative_im_path"]]
            return self._listing(paths, cars["class"], matrix)
        if train := self.below(root, "cars_train_annos.mat"):
            return self._from_devkit(root, train)
        folders = class_folders(root)
        return listing_of_folders(folders, list(folders)[: self.trained])

    def absent(self, paths: Sequence[Path]) -> list[str]:
        """The images of `car_ims` are numbered through; class folders made of it keep that."""
        numbers = {int(path.stem) for path in paths if path.stem.isdecimal()}
        last = self.expected.train + self.expected.test
        if len(numbers) < len(paths) or max(numbers) > last:
            return []
        return [f"{number:06d}.jpg" for number in range(1, last + 1) if number not in numbers]

    def _from_devkit(self, root: Path, train: Path) -> Listing:
        name = "cars_test_annos_withlabels.mat"
        test = self.below(root, name)
        if test is None:
            raise ValueError(
                f"{name} is missing (the devkit's own list of test cars has no classes)"
            )
        images = (self.below(root, "cars_train") or root / "cars_train").parent
        paths: list[Path] = []
        classes = []
        for file, folder in ((train, "cars_train"), (test, "cars_test")):
            cars = _annotated(_matrix(file), file, "fname", "class")
            paths += [images / folder / str(name) for name in cars["fname"]]
            classes.append(cars["class"])
        meta = self.below(root, "cars_meta.mat")
        return self._listing(paths, np.concatenate(classes), _matrix(meta) if meta else {})

    def _listing(self, paths: list[Path], classes: Any, matrix: dict[str, Any]) -> Listing:
        names = enumerate(np.atleast_1d(matrix.get("class_names", [])), start=1)
        called = {str(number): str(name) for number, name in names}
        return Listing(paths, _halves(classes, self.trained), called)


def _matrix(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat  # noqa: PLC0415 - only this layout needs it

    try:
        matrix: dict[str, Any] = loadmat(file, squeeze_me=True)
    except Exception as error:  # a damaged file fails in many ways inside scipy
        raise ValueError(f"{file} is not a whole .mat file: {error}") from error
    return matrix


def _annotated(matrix: dict[str, Any], file: Path, *names: str) -> NDArray[Any]:
    """The annotations, which have fields of these names."""
    cars = np.atleast_1d(matrix.get("annotations", np.empty(0)))
    if lacking := [name for name in names if name not in (cars.dtype.names or ())]:
        raise ValueError(f"{file} has no annotations with {', '.join(lacking)}")
    return cars


def _halves(classes: Iterable[Any], trained: int) -> Columns:
    """Classes by their number, those up to `trained` to train on."""
    numbers = [int(number) for number in classes]
    return Columns(numbers, split=["train" if n <= trained else "test" for n in numbers])


class Cub200(Benchmark):
    """`cub200`: CUB-200-2011, birds; classes 1 to 100 train, 101 to 200 are tested.

    Source   C. Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, 2011
    Layouts  the original (`images.txt`, `image_class_labels.txt`, `images/`), or class folders
             (`001.Black_footed_Albatross` ...) in the root, in `images`, or copied into `train` and
             `test`, which are then merged.

    The official `train_test_split.txt` shares classes between its parts and is not used.

    Args:
        root: where it was unpacked, or the folder above.
        incomplete: a copy that lacks images is taken as it is.
        progress: called with the images looked for and their number.

    Example:
        >>> from unseen.data import Cub200
        >>> Cub200("path/to/cub200").labels  # doctest: +SKIP
    """

    title = "CUB-200-2011"
    layout = (
        "images.txt, image_class_labels.txt and images/, or 200 folders 001.<name> to 200.<name>"
    )
    source = "the page Caltech-UCSD Birds-200-2011 of Caltech Vision"
    expected = Counts(train_classes=100, train=5_864, test_classes=100, test=5_924)
    lists = ("image_class_labels.txt",)
    unpacked = ("CUB_200_2011",)
    known_classes = frozenset({"001.Black_footed_Albatross", "200.Common_Yellowthroat"})
    trained = 100  # classes 1 to 100

    def listing(self, root: Path) -> Listing:
        if listed := self.below(root, "image_class_labels.txt"):
            root = listed.parent
            files, classes = dict(rows(root / "images.txt", 2)), dict(rows(listed, 2))
            if files.keys() != classes.keys():
                raise ValueError(f"images.txt and {listed.name} do not name the same images")
            named = root / "classes.txt"
            columns = _halves([classes[image] for image in files], self.trained)
            paths = [root / "images" / file for file in files.values()]
            return Listing(paths, columns, dict(rows(named, 2)) if named.exists() else {})
        folders = class_folders(root)
        for name in folders:
            if not re.fullmatch(r"\d{3}\..+", name):
                raise ValueError(f"folder {name!r} is no class: expected names like 001.<name>")
        return listing_of_folders(folders, {n for n in folders if int(n[:3]) <= self.trained})


class Groceries(Benchmark):
    """`groceries`: products photographed in stores; every other one is tested, photographs ask for
    the shop's own image.

    Source   M. Klasson et al., A Hierarchical Grocery Store Image Dataset with Visual and Semantic
             Labels, WACV 2019, https://arxiv.org/abs/1901.00711
    Layout   `classes.csv`, `train.txt`, `val.txt` and `test.txt` beside `train/`, `val/`, `test/`
             and `iconic-images-and-descriptions/`, in the root or in `dataset`.
    Labels   the product, 81 of them; `coarse` (apple, milk: 43, the paper says 42) and `kind`
             (fruit, packages, vegetables) are the levels of its hierarchy.
    Parts    the authors' parts share their products, so all their photographs are taken together:
             products with an even number train, those with an odd one are tested (our choice:
             siblings of a coarse class stand on both sides). Photographs ask, the one iconic image
             of each product answers; in training an iconic image is an image as any other.

    Args:
        root: where it was unpacked, or the folder above.
        incomplete: a copy that lacks images is taken as it is.
        progress: called with the images looked for and their number.

    Example:
        >>> from unseen.data import Groceries
        >>> Groceries("path/to/groceries").labels  # doctest: +SKIP
    """

    title = "the Grocery Store Dataset"
    layout = "classes.csv, train.txt, val.txt and test.txt with the folders they name"
    source = "the repository marcusklasson/GroceryStoreDataset"
    expected = Counts(
        train_classes=41, train=2_822, test_classes=40, test=2_680, query=2_640, gallery=40
    )
    lists = ("iconic-images-and-descriptions",)
    unpacked = ("dataset", "GroceryStoreDataset/dataset")

    def listing(self, root: Path) -> Listing:
        file = self.needed(root, "classes.csv")
        with file.open(newline="", encoding="utf-8") as read:
            known = {int(row["Class ID (int)"]): row for row in csv.DictReader(read)}
        photographs = [
            (path, int(number))
            for name in ("train.txt", "val.txt", "test.txt")
            for path, number, _ in rows(file.parent / name, 3, separator=",")
        ]
        iconic = [(row["Iconic Image Path (str)"].strip("/"), n) for n, row in known.items()]
        places, numbers = zip(*photographs, *iconic, strict=True)
        is_photograph = [place < len(photographs) for place in range(len(places))]
        coarse = [known[number]["Coarse Class Name (str)"] for number in numbers]
        columns = Columns(
            [known[number]["Class Name (str)"] for number in numbers],
            split=["test" if number % 2 else "train" for number in numbers],
            query=is_photograph,
            gallery=[not photographed for photographed in is_photograph],
            more={"coarse": coarse, "kind": [Path(place).parts[1] for place in places]},
            levels=("kind", "coarse"),
        )
        return Listing([file.parent / place for place in places], columns)


class Inshop(Benchmark):
    """`inshop`: In-Shop Clothes Retrieval of DeepFashion; queries ask a gallery of the same items.

    Source   Z. Liu et al., DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich
             Annotations, CVPR 2016
    Layout   `list_eval_partition.txt` (in the root, `Eval` or `Anno`) beside `img/`; its first line
             counts the images, its second names the columns `image_name item_id evaluation_status`.
    Labels   the item. Some training items have one image only: they are not trained on.

    Args:
        root: where it was unpacked, or the folder above.
        incomplete: a copy that lacks images is taken as it is.
        progress: called with the images looked for and their number.

    Example:
        >>> from unseen.data import Inshop
        >>> Inshop("path/to/inshop").labels  # doctest: +SKIP
    """

    title = "In-Shop Clothes Retrieval"
    layout = "list_eval_partition.txt and img/"
    source = "the page DeepFashion: In-shop Clothes Retrieval of the Multimedia Laboratory, CUHK"
    expected = Counts(
        train_classes=3_997,
        train=25_882,
        test_classes=3_985,
        test=26_830,
        query=14_218,
        gallery=12_612,
    )
    lists = ("list_eval_partition.txt",)
    unpacked = ("Eval", "Anno", "In-shop Clothes Retrieval Benchmark", "inshop")

    def listing(self, root: Path) -> Listing:
        file = self.needed(root, "list_eval_partition.txt")
        head = [line.split() for line in file.read_text(encoding="utf-8").splitlines()[:2]]
        names = "image_name item_id evaluation_status"
        if (
            len(head) < 2
            or len(head[0]) != 1
            or not head[0][0].isdigit()
            or head[1] != names.split()
        ):
            raise ValueError(f"{file} must begin with a count and the line {names}")
        listed = rows(file, 3, skip=2)
        if len(listed) != int(head[0][0]):
            raise ValueError(f"{file} announces {head[0][0]} images and lists {len(listed)}")
        paths, items, status = zip(*listed, strict=True)
        if strange := {*status} - {*_STATUS}:
            raise ValueError(f"{file}: evaluation_status must be one of {_STATUS}, got {strange}")
        places = [up / sub for up in (file.parent, file.parent.parent, root) for sub in ("", "Img")]
        images = next((place for place in places if (place / "img").exists()), file.parent)
        columns = Columns(
            items,
            split=["train" if word == "train" else "test" for word in status],
            query=[word == "query" for word in status],
            gallery=[word == "gallery" for word in status],
        )
        return Listing([images / path for path in paths], columns)


class Omniglot(Benchmark):
    """`omniglot`: handwritten characters of 50 alphabets; background trains, evaluation is tested.

    Source   B. M. Lake et al., Human-level concept learning through probabilistic program
             induction, Science 2015
    Layout   `images_background/<alphabet>/<character>/*.png` and `images_evaluation/...`
    Labels   the character; `alphabet` is the level above it, and evaluated by as well.

    Args:
        root: where it was unpacked, or the folder above.
        incomplete: a copy that lacks images is taken as it is.
        progress: called with the images looked for and their number.

    Example:
        >>> from unseen.data import Omniglot
        >>> Omniglot("path/to/omniglot").labels  # doctest: +SKIP
    """

    title = "Omniglot"
    layout = "images_background/ and images_evaluation/, each <alphabet>/<character>/*.png"
    source = "the repository brendenlake/omniglot"
    expected = Counts(train_classes=964, train=19_280, test_classes=659, test=13_180)
    lists = ("images_background", "images_evaluation")
    unpacked = ("python", "omniglot", "omniglot-py", "omniglot/python")

    def listing(self, root: Path) -> Listing:
        train, test = (images_in(self.needed(root, folder)) for folder in self.lists)
        paths = [*train, *test]
        alphabets = [path.parent.parent.name for path in paths]
        labels = [f"{path.parent.parent.name}/{path.parent.name}" for path in paths]
        split = ["train"] * len(train) + ["test"] * len(test)
        more = {"alphabet": alphabets}
        return Listing(paths, Columns(labels, split=split, more=more, levels=["alphabet"]))


class OnlineProducts(Benchmark):
    """`online_products`: Stanford Online Products; official lists of training and test products.

    Source   H. O. Song et al., Deep Metric Learning via Lifted Structured Feature Embedding,
             CVPR 2016, https://arxiv.org/abs/1511.06452
    Layout   `Ebay_train.txt` and `Ebay_test.txt` (`image_id class_id super_class_id path`) beside
             the folders `bicycle_final` ...; lists may stand in `Info_Files`, images in `images`.
    Labels   the product; `super_class` is the level above it (evaluated by with `relevance.by`).

    Args:
        root: where it was unpacked, or the folder above.
        incomplete: a copy that lacks images is taken as it is.
        progress: called with the images looked for and their number.

    Example:
        >>> from unseen.data import OnlineProducts
        >>> OnlineProducts("path/to/onlineproducts").labels  # doctest: +SKIP
    """

    title = "Stanford Online Products"
    layout = "Ebay_train.txt, Ebay_test.txt and the folders bicycle_final/ ... toaster_final/"
    source = (
        "the page Deep Metric Learning via Lifted Structured Feature Embedding of Stanford CVGL"
    )
    expected = Counts(train_classes=11_318, train=59_551, test_classes=11_316, test=60_502)
    lists = ("Ebay_train.txt", "Ebay_test.txt")
    unpacked = ("Stanford_Online_Products", "Info_Files", "Stanford_Online_Products/Info_Files")

    def listing(self, root: Path) -> Listing:
        train, test = (rows(self.needed(root, file), 4, skip=1) for file in self.lists)
        _, classes, _, files = zip(*train, *test, strict=True)
        above = [file.split("/")[0] for file in files]
        folders = ("", "images", "Stanford_Online_Products", "Stanford_Online_Products/images")
        images = next((root / f for f in folders if (root / f / above[0]).exists()), root)
        columns = Columns(
            [int(number) for number in classes],
            split=["train"] * len(train) + ["test"] * len(test),
            more={"super_class": [name.removesuffix("_final") for name in above]},
            levels=["super_class"],
        )
        return Listing([images / file for file in files], columns)
