"""`domains`: several data sets as one, for one model of many domains: `data=["birds/", "cars/"]`.

    roots    what `unseen train` takes, one for each domain: folders, tables, features, names

A class is named after its domain (birds/owl), so equal names in two domains are two classes. The
column `domain` says where an item comes from: batches are made by it (`sampler=by_domain`, the
usual one here), and scores are given for each domain and as their mean. The official test classes
of a domain stay so; of one without any, half of its classes are drawn, always the same. All
domains hold pictures, or features of one size.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unseen.contracts import (
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
from unseen.data.base import class_counts

Open = Callable[[str], Dataset]


class Domains:
    """roots: two or more. open_root: makes a data set of each."""

    name = "domains"

    def __init__(self, roots: list[str], open_root: Open) -> None:
        if len(roots) < 2 or len(set(roots)) < len(roots):
            raise ValueError(f"domains must be two or more different data sets, got {roots}")
        parts = [open_root(root) for root in roots]
        self._parts, self.domain_names = parts, _names(parts, roots)
        _refuse_other_kinds(parts)
        sizes = [len(part) for part in parts]
        self._starts = np.cumsum([0, *sizes])
        classes = [len(part.label_names) for part in parts]
        first = np.cumsum([0, *classes])[:-1]
        shifted = [part.labels + start for part, start in zip(parts, first, strict=True)]
        self.labels: IntArray = np.concatenate(shifted).astype(np.int64)
        self.label_names = [
            f"{domain}/{name}"
            for domain, part in zip(self.domain_names, parts, strict=True)
            for name in part.label_names
        ]
        own = [_test_classes(part) + start for part, start in zip(parts, first, strict=True)]
        self.official_test_classes: IntArray = np.concatenate(own)
        self.annotations = _annotations(parts, self.domain_names)
        if all(isinstance(part, FeatureDataset) for part in parts):
            self.features: NDArray[Any] = np.concatenate([_features(part) for part in parts])
        if all(isinstance(part, OpeningDataset) for part in parts):
            self.opened = self._of_item("opened")
        if all(isinstance(part, FiledDataset) for part in parts):
            self.path = self._of_item("path")

    def __len__(self) -> int:
        return len(self.labels)

    def picture(self, index: int) -> Image.Image:
        found: Image.Image = self._of_item("picture")(index)
        return found

    def item_ids(self) -> list[str]:
        named = zip(self.domain_names, self._parts, strict=True)
        return [f"{domain}/{name}" for domain, part in named for name in item_ids_of(part)]

    def digests(self, progress: Progress | None = None) -> list[bytes]:
        return [each for part in self._parts for each in _digests(part, progress)]

    def describe(self) -> dict[str, Any]:
        return class_counts(self.labels, self.label_names) | {"domains": len(self._parts)}

    def fingerprint(self) -> str:
        known = [*self.domain_names, *(part.fingerprint() for part in self._parts)]
        return hashlib.sha256("\n".join(known).encode()).hexdigest()

    def _of_item(self, ability: str) -> Callable[[int], Any]:
        def call(index: int) -> Any:
            place = int(np.searchsorted(self._starts, index, side="right")) - 1
            return getattr(self._parts[place], ability)(index - int(self._starts[place]))

        return call


def _names(parts: Sequence[Dataset], roots: Sequence[str]) -> list[str]:
    """What the domains are called; equal names get the folder before them, or a number."""
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        names = [
            f"{Path(root).parent.name}-{part.name}" for root, part in zip(roots, parts, strict=True)
        ]
    times = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{name}-{time + 1}" if time else name for name, time in zip(names, times, strict=True)]


def _refuse_other_kinds(parts: Sequence[Dataset]) -> None:
    kinds = {
        f"{part.features.shape[1]} features" if isinstance(part, FeatureDataset) else "pictures"
        for part in parts
    }
    if len(kinds) > 1:
        raise ValueError(
            f"domains must all hold pictures, or features of one size; these hold "
            f"{' and '.join(sorted(kinds))}"
        )


def _features(part: Any) -> NDArray[Any]:
    rows: NDArray[Any] = part.features
    return rows


def _test_classes(part: Dataset) -> IntArray:
    """The official ones, or half of those with two items or more."""
    if part.official_test_classes is not None:
        return part.official_test_classes
    paired = np.flatnonzero(np.bincount(part.labels) > 1)
    drawn = np.random.default_rng(0x5EED).permutation(paired)[: (len(paired) + 1) // 2]
    return np.sort(drawn).astype(np.int64)


def _annotations(parts: Sequence[Dataset], names: Sequence[str]) -> Annotations:
    """Who asks and answers, groups, and the domain; other labels mean something in one domain only
    and are left out."""
    known = [annotations_of(part) for part in parts]
    groups, last = [], 0
    for part, each in zip(parts, known, strict=True):
        own = each.ignore_groups
        groups.append(np.full(len(part), -1) if own is None else np.where(own < 0, -1, own + last))
        last += 0 if own is None else int(own.max()) + 1

    def flags(name: str) -> NDArray[np.bool_] | None:
        found = [getattr(each, name) for each in known]
        if all(flag is None for flag in found):
            return None
        filled = zip(parts, found, strict=True)
        return np.concatenate([np.ones(len(p), bool) if f is None else f for p, f in filled])

    has_groups = any(each.ignore_groups is not None for each in known)
    codes = np.repeat(np.arange(len(parts)), [len(part) for part in parts]).astype(np.int64)
    return Annotations(
        query=flags("query"),
        gallery=flags("gallery"),
        ignore_groups=np.concatenate(groups).astype(np.int64) if has_groups else None,
        labels={DOMAIN: codes},
        label_names={DOMAIN: list(names)},
    )


def _digests(part: Dataset, progress: Progress | None) -> list[bytes]:
    if isinstance(part, IdentifiedDataset):
        return part.digests(progress)
    return [hashlib.sha256(part.fingerprint().encode()).digest()] * len(part)
