"""The items a run is about, in `items.npz` of its folder: names, labels, a hash of each content,
and the split. Whoever reads the run later judges these items and no others.

    kept = items_of(dataset, split)
    kept.write(folder)                      # when the run starts
    read_items(folder).found_in(dataset)    # later: the same items, wherever they lie

Runs of version 0.1 have no such file: they are known by the fingerprint of their data and the hash
of their split.
"""

import hashlib
import io
import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unseen import data as data_sets
from unseen.contracts import (
    Annotations,
    Dataset,
    IdentifiedDataset,
    IntArray,
    Split,
    annotations_of,
    item_ids_of,
)
from unseen.data.base import INCOMPLETE, lacking
from unseen.data.pictures.files import PictureFiles
from unseen.training.manifest import StoredItems
from unseen.training.run_folder import RunFolder

FILE = "items.npz"
NAMED = 3  # items of each kind of change that are named one by one
_COLUMNS = ("query", "gallery", "ignore_groups", "label_sets", "pairs", "grades")
_WORDS = ("levels", "set_names")
_TOLD, _FURTHER, _PART = "told", "label_", "split_"


@dataclass(frozen=True)
class Changes:
    """What became of a run's items: their names, in the run's order."""

    removed: list[str]
    moved: list[tuple[str, str]]  # from, to
    changed: list[str]  # other content
    relabelled: list[str]
    added: list[str]

    @property
    def any_lost(self) -> bool:
        """Some item is not what and where it was; added ones do no harm to a finished run."""
        return bool(self.removed or self.moved or self.changed or self.relabelled)

    def __str__(self) -> str:
        facts = {
            "removed": self.removed,
            "moved": [f"{one} to {two}" for one, two in self.moved],
            "of other content": self.changed,
            "relabelled": self.relabelled,
            "added": self.added,
        }
        return "; ".join(
            f"{len(names)} {what} ({_few(names)})" for what, names in facts.items() if names
        )


@dataclass(frozen=True)
class RunItems:
    """`digests`: 32 bytes each. `annotations`: queries, gallery, groups and further labels."""

    ids: list[str]
    labels: IntArray
    label_names: list[str]
    digests: list[bytes]
    split: Split
    annotations: Annotations
    fingerprint: str
    incomplete: str = ""  # what a known data set lacked, in a sentence

    def write(self, folder: RunFolder) -> StoredItems:
        """Keeps the items; returns what the manifest tells of them."""
        folder.write_bytes(FILE, self.content())
        return StoredItems(len(self.ids), self.hash())

    def hash(self) -> str:
        """Changes with every name, label, content, flag, and place in the split."""
        return hashlib.sha256(self.content()).hexdigest()

    def content(self) -> bytes:
        """As it is kept."""
        annotations = {
            "ids": self.ids,
            "label_names": self.label_names,
            "fingerprint": self.fingerprint,
            "further": {name: list(words) for name, words in self.annotations.label_names.items()},
        } | lacking(self.incomplete)
        annotations |= {k: words for k in _WORDS if (words := list(getattr(self.annotations, k)))}
        arrays: dict[str, Any] = {
            _TOLD: np.frombuffer(json.dumps(annotations).encode(), np.uint8),
            "labels": self.labels,
            "digests": np.frombuffer(b"".join(self.digests), np.uint8).reshape(-1, 32),
        }
        arrays |= {_PART + field.name: getattr(self.split, field.name) for field in fields(Split)}
        arrays |= {name: getattr(self.annotations, name) for name in _COLUMNS}
        arrays |= {_FURTHER + name: codes for name, codes in self.annotations.labels.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
        return buffer.getvalue()

    def changes(self, dataset: Dataset) -> Changes:
        """Between these items and those of a data set, known by their names."""
        now = items_of(dataset, self.split)
        place = {name: index for index, name in enumerate(now.ids)}
        known = set(self.ids)
        added = [name for name in now.ids if name not in known]
        homes = {now.digests[place[name]]: name for name in added}
        moved, removed, changed, relabelled = [], [], [], []
        for name, digest, label in zip(self.ids, self.digests, self.labels, strict=True):
            if name not in place:
                home = homes.pop(digest, None)
                moved += [(name, home)] if home else []
                removed += [] if home else [name]
                continue
            index = place[name]
            if now.digests[index] != digest:
                changed.append(name)
            same = now.label_names[now.labels[index]] == self.label_names[label]
            if not (same or self.is_joined):
                relabelled.append(name)
        added = [name for name in added if name not in {home for _, home in moved}]
        return Changes(removed, moved, changed, relabelled, added)

    @property
    def is_joined(self) -> bool:
        """Pairs have made one class of several: the labels are not those of the data alone."""
        return self.annotations.pairs is not None or self.annotations.grades is not None

    def found_in(self, dataset: Dataset) -> Dataset:
        """A data set of these items in this order; all of them must be there."""
        if items_of(dataset, self.split).hash() == self.hash():
            return dataset
        place = {name: index for index, name in enumerate(item_ids_of(dataset))}
        places = np.array([place[name] for name in self.ids], dtype=np.int64)
        chosen: Dataset = data_sets.ChosenItems(
            dataset,
            places,
            self.labels,
            self.label_names,
            self.annotations,
            self.fingerprint,
            self.incomplete,
        )
        return chosen


def items_of(dataset: Dataset, split: Split) -> RunItems:
    """The items of a data set. Where they cannot be told apart, each stands for the whole."""
    whole = dataset.fingerprint()
    digests = (
        dataset.digests()
        if isinstance(dataset, IdentifiedDataset)
        else [hashlib.sha256(whole.encode()).digest()] * len(dataset)
    )
    names = [str(name) for name in dataset.label_names]
    annotations, ids = annotations_of(dataset), item_ids_of(dataset)
    if len(set(ids)) < len(ids):
        raise ValueError(f"{dataset.name}: item_ids() must be different for every item")
    lacked = str(dataset.describe().get(INCOMPLETE, ""))
    return RunItems(ids, dataset.labels, names, digests, split, annotations, whole, lacked)


def read_items(folder: RunFolder) -> RunItems | None:
    """The stored items; None for a run of version 0.1, which has none."""
    told = folder.manifest().data.items
    if told is None:
        return None
    if not folder.has(FILE):
        raise ValueError(f"{folder.file(FILE)} is missing: it says which items the run is about")
    content = folder.processes.agreed(lambda: folder.file(FILE).read_bytes())
    if hashlib.sha256(content).hexdigest() != told.sha256:
        raise ValueError(f"{folder.file(FILE)} is damaged: its checksum is not the manifest's")
    return _read(content)


def changes_since(folder: RunFolder, dataset: Dataset) -> str:
    """What has become of a run's items since it began, in a sentence; nothing if they are there as
    they were, and no others. Of version 0.1, which stored none, only that something changed."""
    kept = read_items(folder)
    if kept is not None:
        told = str(kept.changes(dataset))
        return told and f"the data of {folder.path} have changed since it began: {told}"
    data = folder.manifest().data.data
    now = dataset.fingerprint()
    if isinstance(dataset, PictureFiles):
        now = dataset.fingerprint_of_0_1()
    if data.fingerprint == now:
        return ""
    return (
        f"the data of {folder.path} have changed since it began ({data.items or 0:,} items then, "
        f"{len(dataset):,} now), and version 0.1 did not store which they were: put them back, or "
        "train again"
    )


def refuse_other_items(folder: RunFolder, dataset: Dataset, split: Split) -> None:
    """A ValueError that says what has changed since a run began, be it only who asks whom."""
    if told := changes_since(folder, dataset):
        raise ValueError(told)
    kept = read_items(folder)
    then = folder.manifest().data.split.hash
    is_same = (
        split_hash(split) == then
        if kept is None
        else items_of(dataset, split).hash() == kept.hash()
    )
    if not is_same:
        raise ValueError(
            f"the items of {folder.path} are the same, but their order, their split or a column "
            "(queries, gallery, groups, further labels) has changed since it began"
        )


def split_hash(split: Split) -> str:
    """Changes when any item changes its part."""
    digest = hashlib.sha256()
    asking = [items for items in (split.query, split.gallery) if items is not None]
    for items in (split.train, split.validation, split.test, *asking):
        digest.update(len(items).to_bytes(8, "little") + np.ascontiguousarray(items).tobytes())
    return digest.hexdigest()[:16]


def _read(content: bytes) -> RunItems:
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        arrays: dict[str, NDArray[Any]] = dict(held)
    stored = json.loads(arrays[_TOLD].tobytes())
    codes = {name: arrays[_FURTHER + name] for name in stored["further"]}
    columns: dict[str, Any] = {name: arrays.get(name) for name in _COLUMNS}
    words: dict[str, Any] = {key: tuple(stored.get(key, ())) for key in _WORDS}
    return RunItems(
        stored["ids"],
        arrays["labels"],
        stored["label_names"],
        [row.tobytes() for row in arrays["digests"]],
        Split(**{field.name: arrays.get(_PART + field.name) for field in fields(Split)}),  # type: ignore[arg-type]
        Annotations(**columns, labels=codes, label_names=stored["further"], **words),
        stored["fingerprint"],
        stored.get(INCOMPLETE, ""),
    )


def _few(names: list[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
