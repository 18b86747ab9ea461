"""`domains`: several data sets as one, for one model of many domains: `data=["birds/", "cars/"]`.

    roots    what `unseen train` takes, one for each domain: folders, tables, features, names

A class is named after its domain (birds/owl), so equal names in two domains are two classes. The
column `domain` says where an item comes from: batches are made by it (`sampler=by_domain`, the
usual one here), and scores are given for each domain and as their mean. The official test classes
of a domain stay so; of one without any, half of its classes are drawn, always the same. All
domains hold images, or features of one size.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.core.contracts import (
    DOMAIN,
    Annotations,
    Dataset,
    FeatureDataset,
    FiledDataset,
    IdentifiedDataset,
    IntArray,
    OpeningDataset,
    Progress,
    annotations_of,
    item_ids_of,
)
from unseen.data.base import Described, Items, class_counts

Open = Callable[[str], Dataset]


class Domains(Items):
    """Several data sets as domains of one: trained together, evaluated apart.

    Args:
        roots: Two or more folders, tables or names.
        open_root: Makes a data set of each.

    Example:
        >>> from unseen.data import Domains, Folder
        >>> Domains(["birds", "cars"], Folder).labels  # doctest: +SKIP
    """

    def __init__(self, roots: list[str], open_root: Open) -> None:
        if len(roots) < 2 or len(set(roots)) < len(roots):
            raise ValueError(f"domains must be two or more different data sets, got {roots}")
        datasets = [open_root(root) for root in roots]
        self._datasets, self.domain_names = datasets, _names(datasets, roots)
        _refuse_other_kinds(datasets)
        sizes = [len(dataset) for dataset in datasets]
        self._starts = np.cumsum([0, *sizes])
        classes = [len(dataset.label_names) for dataset in datasets]
        first = np.cumsum([0, *classes])[:-1]
        shifted = [dataset.labels + start for dataset, start in zip(datasets, first, strict=True)]
        names = [
            f"{domain}/{name}"
            for domain, dataset in zip(self.domain_names, datasets, strict=True)
            for name in dataset.label_names
        ]
        own = [
            _test_classes(dataset) + start for dataset, start in zip(datasets, first, strict=True)
        ]
        labels = np.concatenate(shifted).astype(np.int64)
        annotations = _annotations(datasets, self.domain_names)
        super().__init__("domains", Described(labels, names, np.concatenate(own), annotations))
        if all(isinstance(dataset, FeatureDataset) for dataset in datasets):
            self.features: NDArray[Any] = np.concatenate(
                [_features(dataset) for dataset in datasets]
            )
        if all(isinstance(dataset, OpeningDataset) for dataset in datasets):
            self.opened = self._of_item("opened")
        if all(isinstance(dataset, FiledDataset) for dataset in datasets):
            self.path = self._of_item("path")

    def image(self, index: int) -> Image.Image:
        result: Image.Image = self._of_item("image")(index)
        return result

    def item_ids(self) -> list[str]:
        named = zip(self.domain_names, self._datasets, strict=True)
        return [f"{domain}/{name}" for domain, dataset in named for name in item_ids_of(dataset)]

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        return [each for dataset in self._datasets for each in _digests(dataset, progress)]

    def describe(self) -> dict[str, Any]:
        return class_counts(self.labels, self.label_names) | {"domains": len(self._datasets)}

    def fingerprint(self) -> str:
        known = [*self.domain_names, *(dataset.fingerprint() for dataset in self._datasets)]
        return hashlib.sha256("\n".join(known).encode()).hexdigest()

    def _of_item(self, ability: str) -> Callable[[int], Any]:
        def call(index: int) -> Any:
            place = int(np.searchsorted(self._starts, index, side="right")) - 1
            return getattr(self._datasets[place], ability)(index - int(self._starts[place]))

        return call


def _names(datasets: Sequence[Dataset], roots: Sequence[str]) -> list[str]:
    """What the domains are called; equal names get the folder before them, or a number."""
    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names):
        names = [
            f"{Path(root).parent.name}-{dataset.name}"
            for root, dataset in zip(roots, datasets, strict=True)
        ]
    times = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{name}-{time + 1}" if time else name for name, time in zip(names, times, strict=True)]


def _refuse_other_kinds(datasets: Sequence[Dataset]) -> None:
    kinds = {
        f"{dataset.features.shape[1]} features" if isinstance(dataset, FeatureDataset) else "images"
        for dataset in datasets
    }
    if len(kinds) > 1:
        raise ValueError(
            f"domains must all hold images, or features of one size; these hold "
            f"{' and '.join(sorted(kinds))}"
        )


def _features(dataset: Any) -> NDArray[Any]:
    rows: NDArray[Any] = dataset.features
    return rows


def _test_classes(dataset: Dataset) -> IntArray:
    """The official ones, or half of those with two items or more."""
    if dataset.official_test_classes is not None:
        return dataset.official_test_classes
    paired = np.flatnonzero(np.bincount(dataset.labels) > 1)
    drawn = np.random.default_rng(0x5EED).permutation(paired)[: (len(paired) + 1) // 2]
    return np.sort(drawn).astype(np.int64)


def _annotations(datasets: Sequence[Dataset], names: Sequence[str]) -> Annotations:
    """Who asks and answers, groups, and the domain; other labels mean something in one domain only
    and are left out."""
    known = [annotations_of(dataset) for dataset in datasets]
    groups, last = [], 0
    for dataset, each in zip(datasets, known, strict=True):
        own = each.ignore_groups
        groups.append(
            np.full(len(dataset), -1) if own is None else np.where(own < 0, -1, own + last)
        )
        last += 0 if own is None else int(own.max()) + 1

    def flags(name: str) -> NDArray[np.bool_] | None:
        result = [getattr(each, name) for each in known]
        if all(flag is None for flag in result):
            return None
        filled = zip(datasets, result, strict=True)
        return np.concatenate([np.ones(len(p), bool) if f is None else f for p, f in filled])

    has_groups = any(each.ignore_groups is not None for each in known)
    codes = np.repeat(np.arange(len(datasets)), [len(dataset) for dataset in datasets]).astype(
        np.int64
    )
    return Annotations(
        query=flags("query"),
        gallery=flags("gallery"),
        ignore_groups=np.concatenate(groups).astype(np.int64) if has_groups else None,
        labels={DOMAIN: codes},
        label_names={DOMAIN: list(names)},
    )


def _digests(dataset: Dataset, progress: Progress | None) -> list[bytes]:
    if isinstance(dataset, IdentifiedDataset):
        return dataset.digests(progress)
    return [hashlib.sha256(dataset.fingerprint().encode()).digest()] * len(dataset)
