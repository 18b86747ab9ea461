"""A data set looked at before it is trained on: its files, copies, classes, beside its split."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from unseen.contracts import Dataset, Split
from unseen.data.pictures.decode import UnreadablePictureError
from unseen.data.pictures.inspect import Finding, inspect, inspect_loaded
from unseen.data.pictures.survey import Survey, survey
from unseen.experiment.leaks import Filed, Fingerprinted, parts

PARTS = ("train", "validation", "test", "")


def checked(
    dataset: Dataset,
    split: Split | None,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Survey:
    """Every picture of the data set, and those it has left out already."""
    looks: list[Callable[[], Finding]]
    if isinstance(dataset, Filed):
        looks = [partial(inspect, dataset.path(i)) for i in range(len(dataset))]
    elif isinstance(dataset, Fingerprinted):
        looks = [
            partial(inspect_loaded, dataset.item_name(i), digest, partial(dataset.picture, i))
            for i, digest in enumerate(dataset.digests())
        ]
    else:
        raise ValueError(f"{dataset.name} has no picture files to check")
    labels = [str(dataset.label_names[label]) for label in dataset.labels]
    of_split = [""] * len(dataset)
    if split is not None:
        of_split = [PARTS[part] for part in parts(len(dataset), split)]
    skipped: list[UnreadablePictureError] = getattr(dataset, "skipped", [])
    for error in skipped:
        looks.append(partial(inspect, Path(error.path)))
        labels.append(Path(error.path).parent.name)
        of_split.append("")
    return survey(looks, labels, of_split, workers, progress)
