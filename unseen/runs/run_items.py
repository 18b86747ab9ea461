"""The items of a run: names, labels, digests and split, in items.npz of its folder; their classes,
and what they are in counts and fingerprints."""

import hashlib
import io
import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unseen import data as data_sets
from unseen.config.resolve import NORMALISATION
from unseen.core import read_limits
from unseen.core.contracts import (
    Annotations,
    Dataset,
    IdentifiedDataset,
    IntArray,
    Split,
    annotations_of,
    item_ids_of,
)
from unseen.core.names import few
from unseen.data.base import INCOMPLETE, lacking
from unseen.training.checksums import OTHERS
from unseen.training.manifest import Data, DataMetadata, SplitMetadata, StoredItems
from unseen.training.run_folder import RunFolder

if TYPE_CHECKING:
    from unseen.runs.prepare import RunContext

FILE = "items.npz"
_COLUMNS = ("query", "gallery", "ignore_groups", "label_sets", "pairs", "grades")
_WORDS = ("levels", "set_names")
_MESSAGE, _LABELS, _SPLIT = "told", "label_", "split_"


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
        metadata = {
            "removed": self.removed,
            "moved": [f"{one} to {two}" for one, two in self.moved],
            "of other content": self.changed,
            "relabelled": self.relabelled,
            "added": self.added,
        }
        return "; ".join(
            f"{len(names)} {what} ({few(names)})" for what, names in metadata.items() if names
        )


@dataclass(frozen=True)
class RunItems:
    """`digests`: 32 bytes each. `annotations`: queries, gallery, groups and further labels.

    Whoever reads the run later evaluates these items and no others.

    Example:
        items_of(dataset, split).write(folder)  # when the run starts
        read_items(folder).select_from(dataset)  # later: the same items, wherever they lie
    """

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
            _MESSAGE: np.frombuffer(json.dumps(annotations).encode(), np.uint8),
            "labels": self.labels,
            "digests": np.frombuffer(b"".join(self.digests), np.uint8).reshape(-1, 32),
        }
        arrays |= {_SPLIT + field.name: getattr(self.split, field.name) for field in fields(Split)}
        arrays |= {name: getattr(self.annotations, name) for name in _COLUMNS}
        arrays |= {_LABELS + name: codes for name, codes in self.annotations.labels.items()}
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

    def select_from(self, dataset: Dataset) -> Dataset:
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
    """The items of a data set. Where they have no names, each stands for the whole."""
    whole = dataset.fingerprint()
    digests = [hashlib.sha256(whole.encode()).digest()] * len(dataset)
    if isinstance(dataset, IdentifiedDataset):
        digests = dataset.digests()
    names = [str(name) for name in dataset.label_names]
    annotations, ids = annotations_of(dataset), item_ids_of(dataset)
    if len(set(ids)) < len(ids):
        raise ValueError(f"{dataset.name}: item_ids() must be different for every item")
    lacked = str(dataset.describe().get(INCOMPLETE, ""))
    return RunItems(ids, dataset.labels, names, digests, split, annotations, whole, lacked)


def read_items(folder: RunFolder) -> RunItems:
    """The stored items."""
    stored = folder.manifest().data.items
    if stored is None:
        place = folder.file("manifest.json")
        raise ValueError(f"{place} is damaged (data.items: Field required): {OTHERS}")
    if not folder.has(FILE):
        raise ValueError(f"{folder.file(FILE)} is missing: it says which items the run is about")
    content = folder.processes.agreed(lambda: folder.file(FILE).read_bytes())
    if hashlib.sha256(content).hexdigest() != stored.sha256:
        raise ValueError(f"{folder.file(FILE)} is damaged: its checksum is not the manifest's")
    return _read(content)


def changes_since(folder: RunFolder, dataset: Dataset) -> str:
    """What has become of a run's items since it began, in a sentence; nothing if they are there as
    they were, and no others."""
    changes = str(read_items(folder).changes(dataset))
    return changes and f"the data of {folder.path} have changed since it began: {changes}"


def refuse_other_items(folder: RunFolder, dataset: Dataset, split: Split) -> None:
    """A ValueError that says what has changed since a run began, be it only who asks whom."""
    if changes := changes_since(folder, dataset):
        raise ValueError(changes)
    if items_of(dataset, split).hash() != read_items(folder).hash():
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
    with read_limits.load(io.BytesIO(content), "items.npz") as stored:
        arrays: dict[str, NDArray[Any]] = dict(stored)
    stored = json.loads(arrays[_MESSAGE].tobytes())
    codes = {name: arrays[_LABELS + name] for name in stored["further"]}
    columns: dict[str, Any] = {name: arrays.get(name) for name in _COLUMNS}
    words: dict[str, Any] = {key: tuple(stored.get(key, ())) for key in _WORDS}
    return RunItems(
        stored["ids"],
        arrays["labels"],
        stored["label_names"],
        [row.tobytes() for row in arrays["digests"]],
        Split(**{field.name: arrays.get(_SPLIT + field.name) for field in fields(Split)}),  # type: ignore[arg-type]
        Annotations(**columns, labels=codes, label_names=stored["further"], **words),
        stored["fingerprint"],
        stored.get(INCOMPLETE, ""),
    )


def training_classes(labels: IntArray, train: IntArray) -> Tensor:
    """For each label of the data set its training class 0..C-1, or -1."""
    class_of = np.full(int(labels.max()) + 1, -1, dtype=np.int64)
    classes = np.unique(labels[train])
    class_of[classes] = np.arange(len(classes))
    return torch.from_numpy(class_of)


def some_classes(items: IntArray, labels: IntArray, number: int, seed: int) -> IntArray:
    """Items of whole classes at random, about `number`; all of them where there are no more.

    Training classes are compared on as many images as there are to select or test on: recall falls
    with the size of the gallery.
    """
    classes = np.random.default_rng([seed, 1]).permutation(np.unique(labels[items]))
    sizes = np.bincount(labels[items])[classes]
    selected = classes[: max(2, int(np.searchsorted(np.cumsum(sizes), number)))]
    return items[np.isin(labels[items], selected)]


def describe(context: "RunContext") -> Data:
    """Data and split in counts and fingerprints; no paths, so that results can be compared."""
    dataset, split = context.dataset, context.split
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    counts: dict[str, Any] = {f"{name}_items": len(items) for name, items in parts.items()}
    for name, items in parts.items():
        counts[f"{name}_classes"] = len(np.unique(dataset.labels[items]))
    for name, request in (("query", split.query), ("gallery", split.gallery)):
        if request is not None:
            counts[f"{name}_items"] = len(request)
    if context.config.data.label_noise is not None:
        changed = context.training_labels[split.train] != dataset.labels[split.train]
        counts["changed_labels"] = int(changed.sum())
    counts["hash"] = split_hash(split)
    if context.shift is not None and context.config.evaluation.protocol.shift is not None:
        counts |= {
            "shift": context.shift,
            "shift_step": context.config.evaluation.protocol.shift.step,
        }
    described = dataset.describe()
    metadata: dict[str, Any] = {
        key: value
        for key, value in described.items()
        if isinstance(value, int) or key == INCOMPLETE
    }
    metadata |= context.copies.counts() if context.copies else {}
    normalisation = (reason.why for reason in context.reasons if reason.key == NORMALISATION)
    metadata["normalisation"] = next(normalisation, None)
    known = DataMetadata(**metadata, name=dataset.name, fingerprint=dataset.fingerprint())
    return Data(known, SplitMetadata(**counts))
