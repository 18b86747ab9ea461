"""A data set looked at before it is trained on: its files, copies, classes, beside its split."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from unseen.core.contracts import (
    Dataset,
    FiledDataset,
    IdentifiedDataset,
    OpeningDataset,
    Progress,
    Split,
)
from unseen.data.images.dataset_check import Survey, survey
from unseen.data.images.image_check import Finding, inspect, inspect_loaded
from unseen.data.images.image_files import ImageFiles
from unseen.data.images.item_digests import learn
from unseen.runs.leaks import parts

PARTS = ("train", "validation", "test", "")


def checked(
    dataset: Dataset,
    split: Split | None,
    workers: int = 2,
    progress: Progress | None = None,
) -> Survey:
    """Every image of the data set, and those it has left out already."""
    checks: list[Callable[[], Finding]]
    if isinstance(dataset, FiledDataset):
        checks = [partial(inspect, dataset.path(i)) for i in range(len(dataset))]
    elif isinstance(dataset, IdentifiedDataset) and isinstance(dataset, OpeningDataset):
        items = zip(dataset.item_ids(), dataset.digests(), strict=True)
        checks = [
            partial(inspect_loaded, f"{dataset.name}: {name}", digest, partial(dataset.image, i))
            for i, (name, digest) in enumerate(items)
        ]
    else:
        raise ValueError(f"{dataset.name} has no image files to check")
    labels = [str(dataset.label_names[label]) for label in dataset.labels]
    of_split = [""] * len(dataset)
    if split is not None:
        of_split = [PARTS[side] for side in parts(len(dataset), split)]
    if isinstance(dataset, ImageFiles):
        for error in dataset.skipped:
            place = error.path if isinstance(error.path, str) else Path(error.path)
            checks.append(partial(inspect, place))
        labels += dataset.skipped_labels or [""] * len(dataset.skipped)
        of_split += [""] * len(dataset.skipped)
    result = survey(checks, labels, of_split, workers, progress)
    if isinstance(dataset, ImageFiles):
        # all files were read: what is kept of them is true again, whatever their times said
        learn(
            dataset.root,
            {finding.path: finding.digest for finding in result.findings if finding.digest},
        )
    return result
