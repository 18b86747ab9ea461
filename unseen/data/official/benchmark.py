"""A benchmark on disk, believed only when it is whole: classes and pictures are counted, no listed
file is missing, no class is in two parts. What is wrong is told beside what was expected and where
the data come from.
"""

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn

import numpy as np

from unseen.contracts import Progress
from unseen.data.base import Columns, described
from unseen.data.official.layouts import class_names
from unseen.data.pictures.files import PictureFiles, missing


@dataclass(frozen=True)
class Counts:
    """Classes and pictures of the official parts; queries and gallery where they are told apart."""

    train_classes: int
    train: int
    test_classes: int
    test: int
    query: int = 0
    gallery: int = 0

    @property
    def classes(self) -> int:
        return self.train_classes + self.test_classes

    def __str__(self) -> str:
        asked = f" ({self.query:,} query, {self.gallery:,} gallery)" if self.query else ""
        return (
            f"{self.train:,} pictures of {self.train_classes:,} classes to train on and "
            f"{self.test:,}{asked} of {self.test_classes:,} to test"
        )


@dataclass(frozen=True)
class Listing:
    """Pictures and their columns; `names` says what a label is called, where it is a number."""

    paths: list[Path]
    columns: Columns
    names: Mapping[str, str] | None = None


class Benchmark(PictureFiles):
    """root: where it was unpacked, or the folder above."""

    title: ClassVar[str]
    layout: ClassVar[str]  # what stands below the root
    source: ClassVar[str]  # the page to get it from
    expected: ClassVar[Counts]
    known_classes: ClassVar[frozenset[str]] = frozenset()  # folders by which a copy is recognised

    def __init__(self, root: str | Path, progress: Progress | None = None) -> None:
        root = Path(root)
        if not root.is_dir():
            raise FileNotFoundError(f"no such folder: {root}; {self._advice()}")
        try:
            listing = self.listing(root)
            found = _count(listing.columns)
            if found != self.expected:
                raise ValueError(f"expected {self.expected}; found {found}")
            told = described(listing.columns, self.title)
        except (ValueError, KeyError, IndexError, OSError) as error:
            self._refuse(root, str(error))
        lost = missing(listing.paths, progress)
        if lost:
            some = f"{len(lost):,} of {len(listing.paths):,} listed pictures are missing"
            self._refuse(root, f"{some}, the first is {lost[0]}")
        name = type(self).__module__.rpartition(".")[2]
        super().__init__(root, name, listing.paths, told)
        self.base = Path(os.path.commonpath(listing.paths))  # the root may be the folder above
        if listing.names is not None:
            self.label_names = [listing.names.get(label, label) for label in told.label_names]

    @classmethod
    @abstractmethod
    def recognises(cls, root: Path) -> bool:
        """Whether a folder is meant to be this benchmark: it has the official lists, be they whole
        or not, or folders of all classes."""

    @classmethod
    def class_folders_of_it(cls, root: Path) -> int:
        """How many class folders stand there, if some of them are known to be of this benchmark."""
        names = class_names(root)
        return len(names) if cls.known_classes & names else 0

    @abstractmethod
    def listing(self, root: Path) -> Listing:
        """What the lists or folders name. ValueError or KeyError where they cannot be read."""

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
        query=0 if columns.query is None else int(np.sum(columns.query)),
        gallery=0 if columns.gallery is None else int(np.sum(columns.gallery)),
    )
