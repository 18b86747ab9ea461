"""Label issues of a run, of a file of features, or of any data set."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unseen.config import find_data
from unseen.config.resolve import resolve
from unseen.config.schema import Config
from unseen.core import read_limits
from unseen.core.contracts import (
    Dataset,
    FeatureDataset,
    FiledDataset,
    IntArray,
    annotations_of,
    item_ids_of,
)
from unseen.core.files import shown
from unseen.data.arrays import Arrays
from unseen.data.base import Described
from unseen.data.images.image_files import ImageFiles
from unseen.data.images.table_file import Columns
from unseen.data.images.write_table import table_columns
from unseen.neighbors.space import to_sphere
from unseen.runs.batch_source import source_of
from unseen.runs.extract_features import write_features
from unseen.runs.label_issue_scores import LabelIssueScores, label_issues
from unseen.runs.prepare import Callbacks, RunContext, computing
from unseen.runs.run_networks import embed_at, stored_network
from unseen.runs.trained_run import descriptor_of
from unseen.training.run_folder import RunFolder

EXAMPLES = 4  # images of each class beside a label issue


@dataclass(frozen=True)
class LabelIssues:
    """`items`: positions in the data set of those that were looked at; `rows`, their unit vectors,
    and `scores` are in their order. by: what was compared, in words."""

    dataset: Dataset
    items: IntArray
    rows: Tensor  # [n, D]
    scores: LabelIssueScores
    by: str

    def nearest(self, place: int, label: int) -> list[int]:
        """Examples: the items of a class nearest to one that was looked at."""
        places = np.flatnonzero(self.dataset.labels[self.items] == label)
        places = places[places != place]
        sim = self.rows[places] @ self.rows[place]
        nearest = sim.topk(min(EXAMPLES, len(places))).indices.numpy()
        result: list[int] = self.items[places[nearest]].tolist()
        return result

    def names(self) -> list[str]:
        """Of all items: their file, or their id."""
        if isinstance(self.dataset, FiledDataset):
            return [shown(self.dataset.path(index)) for index in range(len(self.dataset))]
        return item_ids_of(self.dataset)

    def listed(self, places: Sequence[int]) -> Columns:
        """Some of those that were looked at, with the label that they have and the likeliest."""
        names, labels = self.names(), self.dataset.label_names
        return {
            "item": [names[self.items[place]] for place in places],
            "label": [str(labels[self.dataset.labels[self.items[place]]]) for place in places],
            "suggested": [str(labels[int(self.scores.suggested[place, 0])]) for place in places],
            "issue_score": [f"{float(self.scores.issue_score[place]):.4f}" for place in places],
        }

    @property
    def summary(self) -> str:
        """How many look wrong, of those that were compared."""
        likelier = int((self.scores.issue_score > 0.5).sum())
        return f"another class is likelier for {likelier:,} of {len(self.items):,} items"

    @property
    def key(self) -> str:
        """Changes with the data and with who is suspected."""
        content = self.dataset.fingerprint().encode() + self.scores.order.numpy().tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    @property
    def has_images(self) -> bool:
        return not isinstance(self.dataset, FeatureDataset)

    def columns(self) -> Columns | None:
        """The table of all items with their labels as they are; None where they are no files."""
        if not isinstance(self.dataset, ImageFiles):
            return None
        return table_columns(self.dataset, self.dataset.official_test_classes)


def label_issues_of_data(config: Config, out: Path, callbacks: Callbacks) -> LabelIssues:
    """Of all items of a data set. out: a folder, where features that had to be computed stay."""
    dataset = find_data.open_data(config.data, callbacks.of("reading the data"), config.data.strict)
    everyone = np.arange(len(dataset))
    if isinstance(dataset, FeatureDataset):
        features = torch.from_numpy(np.asarray(dataset.features, dtype=np.float32))
        imaged = _images_of(dataset) if isinstance(dataset, Arrays) else None
        by = f"{features.shape[1]:,} features as given"
        return _result(imaged or dataset, everyone, features, callbacks, by)
    resolved, _ = resolve(config, dataset)
    torch.set_num_threads(resolved.training.machine.threads)
    file, progress = out / "features.npz", callbacks.of("computing features")
    size = write_features(resolved, dataset, file, progress)
    features = torch.from_numpy(read_limits.load(file)["features"])
    by = f"{size:,} features of {resolved.model.backbone}"
    by += "" if resolved.model.weights else " without pretrained weights, which say little"
    return _result(dataset, everyone, features, callbacks, by)


def label_issues_of_run(
    context: RunContext, folder: RunFolder, callbacks: Callbacks, with_test: bool = False
) -> LabelIssues:
    """By the run's descriptor. with_test: also of its test classes.

    The embeddings of a run were trained on its labels, and a network that has memorised a wrong
    one agrees with it: its training and validation items are compared, its test items on
    request, which the manifest notes. `label_issues_of_data` compares features of a frozen
    network instead.
    """
    split = context.split
    parts = [split.train, split.validation, *([split.test] if with_test else [])]
    items = np.sort(np.concatenate(parts))
    if with_test:
        folder.note_test_read("suspected labels", context.config.hash())
    network, layer = stored_network(context, folder), descriptor_of(folder)
    with computing(context):
        source = source_of(context, network, callbacks)
        rows = embed_at(layer, source, network, folder, items, callbacks.of("embedding"))
    return _result(context.dataset, items, rows, callbacks, f"the {layer} of {folder.path}")


def _result(
    dataset: Dataset, items: IntArray, rows: Tensor, callbacks: Callbacks, by: str
) -> LabelIssues:
    rows, labels = to_sphere(rows.cpu()), torch.from_numpy(dataset.labels[items])
    scores = label_issues(rows, labels, progress=callbacks.of("comparing"))
    return LabelIssues(dataset, items, rows, scores, by)


def _images_of(dataset: Arrays) -> Dataset | None:
    """The images that features were made of, where all of them are still there."""
    paths = [Path(file) for file in dataset.files]
    if len(paths) != len(dataset) or not all(path.is_file() for path in paths):
        return None
    annotations, groups = annotations_of(dataset), annotations_of(dataset).ignore_groups
    names = [str(group) for group in range(0 if groups is None else int(groups.max()) + 1)]
    metadata = Described(
        dataset.labels, list(dataset.label_names), dataset.official_test_classes, annotations, names
    )
    images: Dataset = ImageFiles(dataset.root.parent, dataset.name, paths, metadata)
    return images
