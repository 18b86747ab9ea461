"""A benchmark on disk, believed only when it is whole: classes and images are counted, no listed
file is missing, no class is in two parts. What is wrong is told beside what was expected and where
the data come from. With `incomplete` a copy that lacks some images, but no class, is taken as it
is: `describe()` says what is missing, and so does every page made of it. Lists and class folders
are read as the authors, and those who copy them, lay them out.
"""

import os
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn

import numpy as np

from unseen.core.contracts import Progress
from unseen.core.names import few, near_path
from unseen.data.base import Columns, described
from unseen.data.images.image_files import ImageFiles, images_in, missing

AS_IT_IS = " (data.incomplete=true takes it as it is, and every page says so)"
_COPIES = ("train", "test", "valid", "val")
NO_CLASS = "; no class may be missing, and nothing stand there twice"


@dataclass(frozen=True)
class Counts:
    """Classes and images of the official parts; queries and gallery where they are significantly
    different."""

    train_classes: int
    train: int
    test_classes: int
    test: int
    query: int = 0
    gallery: int = 0

    @property
    def classes(self) -> int:
        return self.train_classes + self.test_classes

    def is_subset_of(self, whole: "Counts") -> bool:
        """Whether images are missing, and nothing else."""
        if (self.train_classes, self.test_classes) != (whole.train_classes, whole.test_classes):
            return False
        return all(getattr(self, key) <= getattr(whole, key) for key in _IMAGES)

    def __str__(self) -> str:
        retrieval = f" ({self.query:,} query, {self.gallery:,} gallery)" if self.query else ""
        return (
            f"{self.train:,} images of {self.train_classes:,} classes to train on and "
            f"{self.test:,}{retrieval} of {self.test_classes:,} to test"
        )


_IMAGES = ("train", "test", "query", "gallery")


@dataclass(frozen=True)
class Listing:
    """Images and their columns; `names` says what a label is called, where it is a number."""

    paths: list[Path]
    columns: Columns
    names: Mapping[str, str] | None = None

    def without(self, lost: Sequence[Path]) -> "Listing":
        """Without images that are not there."""
        if not lost:
            return self
        absent = set(lost)
        rows = np.array([i for i, path in enumerate(self.paths) if path not in absent], np.int64)
        return Listing([self.paths[i] for i in rows], self.columns.of(rows), self.names)


def listing_of_folders(folders: Mapping[str, list[Path]], trained: Collection[str]) -> Listing:
    """Images by class, some of the classes to train on."""
    labels = [name for name, paths in folders.items() for _ in paths]
    split = ["train" if name in trained else "test" for name in labels]
    return Listing([path for paths in folders.values() for path in paths], Columns(labels, split))


class Benchmark(ImageFiles):
    """root: where it was unpacked, or the folder above. incomplete: a copy that lacks images is
    taken as it is."""

    title: ClassVar[str]
    layout: ClassVar[str]  # what stands below the root
    source: ClassVar[str]  # the page to get it from
    expected: ClassVar[Counts]
    lists: ClassVar[tuple[str, ...]]  # any of them marks a copy, be it whole or not
    unpacked: ClassVar[tuple[str, ...]] = ()  # folders below the root that the lists may be in
    known_classes: ClassVar[frozenset[str]] = frozenset()  # folders by which a copy is recognised

    def __init__(
        self, root: str | Path, incomplete: bool = False, progress: Progress | None = None
    ) -> None:
        root = Path(root)
        if not root.is_dir():
            raise FileNotFoundError(
                f"no such folder: {root}{near_path(root) or f'; {self._advice()}'}"
            )
        try:
            listing = self.listing(root)
            lost = missing(listing.paths, progress)
            here = listing.without(lost)
            result = _count(here.columns)
            is_taken = result == self.expected or (
                incomplete and result.is_subset_of(self.expected)
            )
            if not is_taken:
                raise ValueError(self._gap(listing, lost, result) + NO_CLASS * incomplete)
            metadata = described(here.columns, self.title)
        except (ValueError, KeyError, IndexError, OSError) as error:
            self._refuse(root, str(error))
        super().__init__(root, self.name_in_configs(), here.paths, metadata)
        self.base = Path(os.path.commonpath(here.paths))  # the root may be the folder above
        if listing.names is not None:
            self.label_names = [listing.names.get(label, label) for label in metadata.label_names]
        if result != self.expected:
            names = [path.name for path in lost] or self.absent(here.paths)
            self.incomplete = self._sentence(result, names)

    @classmethod
    def name_in_configs(cls) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def recognises(cls, root: Path) -> bool:
        """Whether a folder is meant to be this benchmark: it has an official list, or folders of
        all classes."""
        is_listed = any(cls.below(root, file) for file in cls.lists)
        return is_listed or cls.class_folders_of_it(root) >= cls.expected.classes

    @classmethod
    def below(cls, root: Path, file: str) -> Path | None:
        """A file in the root or in one of the folders it may have been unpacked into."""
        places = [root, *(root / name for name in cls.unpacked)]
        return next((place / file for place in places if (place / file).exists()), None)

    @classmethod
    def needed(cls, root: Path, file: str) -> Path:
        """The same of a file that must be there."""
        if place := cls.below(root, file):
            return place
        raise ValueError(f"{file} is missing")

    @classmethod
    def class_folders_of_it(cls, root: Path) -> int:
        """How many class folders stand there, if some of them are known to be of this benchmark."""
        names = class_names(root)
        return len(names) if cls.known_classes & names else 0

    @abstractmethod
    def listing(self, root: Path) -> Listing:
        """What the lists or folders name. ValueError or KeyError where they cannot be read."""

    def absent(self, paths: Sequence[Path]) -> list[str]:
        """The names of missing images that no list names, where those that are there tell."""
        return []

    def _gap(self, listing: Listing, lost: Sequence[Path], result: Counts) -> str:
        """What a copy lacks, or has too much."""
        if _count(listing.columns) != self.expected:
            gap = f"expected {self.expected}; found {result}"
        else:
            some = f"{len(lost):,} of {len(listing.paths):,} listed images are missing"
            gap = f"{some}, the first is {lost[0]}"
        return gap + AS_IT_IS * result.is_subset_of(self.expected)

    def _sentence(self, result: Counts, names: Sequence[str]) -> str:
        """What is missing, for every page."""
        whole = self.expected
        named = f" ({few(names)})" if names else ""
        return (
            f"Incomplete: {result.train + result.test:,} of the {whole.train + whole.test:,} "
            f"images of {self.title}; {whole.train - result.train:,} images of training classes "
            f"and {whole.test - result.test:,} of test classes are missing{named}."
        )

    def _refuse(self, root: Path, what: str) -> NoReturn:
        raise ValueError(
            f"{root} is not the whole of {self.title}: {what}. {self._advice()} (As plain class "
            "folders, whatever is there: data.name=folder)"
        )

    def _advice(self) -> str:
        return f"It needs {self.layout}; get it from {self.source}."


def _count(columns: Columns) -> Counts:
    assert columns.split is not None, "a benchmark lists its parts"
    labels, tested = np.asarray(columns.labels), np.asarray(columns.split) == "test"
    return Counts(
        train_classes=len(np.unique(labels[~tested])),
        train=int((~tested).sum()),
        test_classes=len(np.unique(labels[tested])),
        test=int(tested.sum()),
        query=0 if columns.query is None else int(np.asarray(columns.query)[tested].sum()),
        gallery=0 if columns.gallery is None else int(np.asarray(columns.gallery)[tested].sum()),
    )


def rows(file: Path, columns: int, skip: int = 0, separator: str | None = None) -> list[list[str]]:
    """The words of each line after the first `skip`; a line with too few or many is named."""
    result = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        words = [word.strip() for word in line.split(separator)]
        if number <= skip or not any(words):
            continue
        if len(words) != columns:
            raise ValueError(f"{file}, line {number}: expected {columns} columns, got {len(words)}")
        result.append(words)
    return result


def class_folders(root: Path) -> dict[str, list[Path]]:
    """Images by class, from class folders in the root, in `images`, or in `train` and `test`
    (each with all classes, as copies for classification have them), sorted by class."""
    result: dict[str, list[Path]] = {}
    for folder in _folders(root):
        if not folder.name.startswith("."):
            result.setdefault(folder.name, []).extend(images_in(folder))
    return {name: sorted(result[name], key=lambda path: path.name) for name in sorted(result)}


def class_names(root: Path) -> set[str]:
    """The names of the class folders, without opening them; none where there is no folder."""
    return {folder.name for folder in _folders(root)} if root.is_dir() else set()


def _folders(root: Path) -> list[Path]:
    if (root / "images").is_dir():
        root = root / "images"
    copies = [root / name for name in _COPIES if (root / name).is_dir()] or [root]
    return [entry for copy in copies for entry in copy.iterdir() if entry.is_dir()]
