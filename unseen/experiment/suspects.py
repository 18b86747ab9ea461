"""Whose label may be wrong: of a run, a file of features, or any data set.

    found = suspects_of_data(config, watch)      # features of a frozen network, or those of a file
    found = suspects_of_run(context, folder, watch)

What is compared is never trained on the labels in question where there is a choice: a data set goes
through its backbone once, frozen. The embeddings of a run were trained on its labels, and a network
that has learned a wrong one by heart finds it right; of a run's items those of the training and
validation classes are looked at, and the test classes only on request, which its manifest notes.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unseen import find_data
from unseen.config import Config
from unseen.contracts import (
    Dataset,
    FeatureDataset,
    FiledDataset,
    IntArray,
    annotations_of,
    item_ids_of,
)
from unseen.data.arrays import Arrays
from unseen.data.base import Described
from unseen.data.pictures.files import PictureFiles
from unseen.data.pictures.table_file import Columns
from unseen.data.pictures.write_table import table_columns
from unseen.experiment.features import write_features
from unseen.experiment.layers import stored_network
from unseen.experiment.orders import embed_at
from unseen.experiment.run_context import RunContext, Watch, computing
from unseen.experiment.source import source_of
from unseen.experiment.suspicion import Suspect, Suspicion, suspects
from unseen.experiment.trained import descriptor_of
from unseen.files import shown
from unseen.neighbours.space import to_sphere
from unseen.settle import settle
from unseen.training.run_folder import RunFolder

EXAMPLES = 4  # pictures of each class beside a suspect


@dataclass(frozen=True)
class Found:
    """`items`: positions in the data set of those that were looked at; `rows`, their unit vectors,
    and `suspicion` are in their order. by: what was compared, in words."""

    dataset: Dataset
    items: IntArray
    rows: Tensor  # [n, D]
    suspicion: Suspicion
    by: str

    def suspect(self, place: int) -> Suspect:
        """With examples: the nearest to it of its class, and of those it could move to."""
        found, label = self.suspicion, int(self.dataset.labels[self.items[place]])
        suggested = found.suggested[place].tolist()
        own, *near = (self._nearest(place, each) for each in (label, *suggested))
        suspicion = float(found.suspicion[place])
        return Suspect(int(self.items[place]), label, suggested, suspicion, own, near)

    def _nearest(self, place: int, label: int) -> list[int]:
        places = np.flatnonzero(self.dataset.labels[self.items] == label)
        places = places[places != place]
        sim = self.rows[places] @ self.rows[place]
        nearest = sim.topk(min(EXAMPLES, len(places))).indices.numpy()
        found: list[int] = self.items[places[nearest]].tolist()
        return found

    def names(self) -> list[str]:
        """Of all items: their file, or their id."""
        if isinstance(self.dataset, FiledDataset):
            return [shown(self.dataset.path(index)) for index in range(len(self.dataset))]
        return item_ids_of(self.dataset)

    @property
    def summary(self) -> str:
        """How many look wrong, of those that were compared."""
        likelier = int((self.suspicion.suspicion > 0.5).sum())
        return f"another class is likelier for {likelier:,} of {len(self.items):,} items"

    @property
    def key(self) -> str:
        """Changes with the data and with who is suspected."""
        content = self.dataset.fingerprint().encode() + self.suspicion.order.numpy().tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    @property
    def has_pictures(self) -> bool:
        return not isinstance(self.dataset, FeatureDataset)

    def columns(self) -> Columns | None:
        """The table of all items with their labels as they are; None where they are no files."""
        if not isinstance(self.dataset, PictureFiles):
            return None
        return table_columns(self.dataset, self.dataset.official_test_classes)


def suspects_of_data(config: Config, out: Path, watch: Watch) -> Found:
    """Of all items of a data set. out: a folder, where features that had to be computed stay."""
    dataset = find_data.open_data(config.data, watch.of("reading the data"), config.strict)
    everyone = np.arange(len(dataset))
    if isinstance(dataset, FeatureDataset):
        features = torch.from_numpy(np.asarray(dataset.features, dtype=np.float32))
        pictured = _pictures_of(dataset) if isinstance(dataset, Arrays) else None
        by = f"{features.shape[1]:,} features as given"
        return _found(pictured or dataset, everyone, features, watch, by)
    settled, _ = settle(config, dataset)
    torch.set_num_threads(settled.threads)
    file, progress = out / "features.npz", watch.of("computing features")
    size = write_features(settled, dataset, file, progress)
    features = torch.from_numpy(np.load(file)["features"])
    by = f"{size:,} features of {settled.backbone}"
    by += "" if settled.weights else " without pretrained weights, which say little"
    return _found(dataset, everyone, features, watch, by)


def suspects_of_run(
    context: RunContext, folder: RunFolder, watch: Watch, with_test: bool = False
) -> Found:
    """By the run's descriptor. with_test: also of its test classes."""
    split = context.split
    parts = [split.train, split.validation, *([split.test] if with_test else [])]
    items = np.sort(np.concatenate(parts))
    if with_test:
        folder.note_test_read("suspected labels", context.config.hash())
    network, layer = stored_network(context, folder), descriptor_of(folder)
    with computing(context):
        source = source_of(context, network, watch)
        rows = embed_at(layer, source, network, folder, items, watch.of("embedding"))
    return _found(context.dataset, items, rows, watch, f"the {layer} of {folder.path}")


def _found(dataset: Dataset, items: IntArray, rows: Tensor, watch: Watch, by: str) -> Found:
    rows, labels = to_sphere(rows.cpu()), torch.from_numpy(dataset.labels[items])
    found = suspects(rows, labels, progress=watch.of("comparing"))
    return Found(dataset, items, rows, found, by)


def _pictures_of(dataset: Arrays) -> Dataset | None:
    """The pictures that features were made of, where all of them are still there."""
    paths = [Path(file) for file in dataset.files]
    if len(paths) != len(dataset) or not all(path.is_file() for path in paths):
        return None
    annotations, groups = annotations_of(dataset), annotations_of(dataset).ignore_groups
    names = [str(group) for group in range(0 if groups is None else int(groups.max()) + 1)]
    facts = Described(
        dataset.labels, list(dataset.label_names), dataset.official_test_classes, annotations, names
    )
    pictures: Dataset = PictureFiles(dataset.root.parent, dataset.name, paths, facts)
    return pictures
