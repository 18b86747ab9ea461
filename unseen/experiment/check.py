"""A data set looked at before it is trained on: its files, copies, classes, beside its split."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from unseen import addresses
from unseen.contracts import (
    Dataset,
    FiledDataset,
    IdentifiedDataset,
    OpeningDataset,
    Progress,
    Split,
)
from unseen.data.pictures.files import PictureFiles
from unseen.data.pictures.inspect import Finding, inspect, inspect_loaded
from unseen.data.pictures.item_digests import learn
from unseen.data.pictures.survey import Survey, survey
from unseen.experiment.leaks import parts
from unseen.files import shown

PARTS = ("train", "validation", "test", "")


def checked(
    dataset: Dataset,
    split: Split | None,
    workers: int = 2,
    progress: Progress | None = None,
) -> Survey:
    """Every picture of the data set, and those it has left out already."""
    looks: list[Callable[[], Finding]]
    if isinstance(dataset, FiledDataset):
        looks = [partial(inspect, dataset.path(i)) for i in range(len(dataset))]
    elif isinstance(dataset, IdentifiedDataset) and isinstance(dataset, OpeningDataset):
        items = zip(dataset.item_ids(), dataset.digests(), strict=True)
        looks = [
            partial(inspect_loaded, f"{dataset.name}: {name}", digest, partial(dataset.picture, i))
            for i, (name, digest) in enumerate(items)
        ]
    else:
        raise ValueError(f"{dataset.name} has no picture files to check")
    labels = [str(dataset.label_names[label]) for label in dataset.labels]
    of_split = [""] * len(dataset)
    if split is not None:
        of_split = [PARTS[part] for part in parts(len(dataset), split)]
    for error in dataset.skipped if isinstance(dataset, PictureFiles) else ():
        place = error.path if isinstance(error.path, str) else Path(error.path)
        looks.append(partial(inspect, place))
        labels.append(shown(addresses.name_of(addresses.parent(place))))
        of_split.append("")
    found = survey(looks, labels, of_split, workers, progress)
    if isinstance(dataset, PictureFiles):
        # all files were read: what is kept of them is true again, whatever their times said
        learn(dataset.root, {look.path: look.digest for look in found.findings if look.digest})
    return found
