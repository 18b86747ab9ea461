"""Half of the classes train, half are tested."""

from dataclasses import dataclass, replace

import numpy as np

from unseen.core.contracts import DOMAIN, Dataset, IntArray, Split, annotations_of, domains_of
from unseen.core.names import known

ENOUGH = 8  # classes to select on, where there are three times as many


@dataclass(frozen=True)
class HalfSplit:
    """Half split: train on one half of the classes, test on the other, select on classes set aside.

    Where the data set's authors named test classes, those are the test half. Otherwise half of the
    classes are drawn at random. Validation classes are drawn from the training half; at random,
    because neighbouring class names are often related; where the authors named them too, theirs are
    taken. Classes with one image have no partner: they are neither trained on nor drawn for
    testing. Where the authors named one for testing, it stays in the gallery.

    Of n training classes 15 % select, or min(8, n // 3) where that is more (`enough_fraction`): an
    epoch that two or three classes choose is chosen by chance.

    Args:
        validation_fraction: the share of training classes set aside to select on; 0.15.

    Example:
        >>> import torch
        >>> from unseen.protocols import HalfSplit
        >>> from unseen.data.in_memory.user_data import as_dataset
        >>> dataset = as_dataset((torch.randn(80, 4), torch.arange(80) // 4))
        >>> [len(split.train) for split in HalfSplit()(dataset, seed=0)]
        [32]
    """

    validation_fraction: float = 0.15

    def __post_init__(self) -> None:
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie between 0 and 1, got {self.validation_fraction}"
            )

    def __call__(self, dataset: Dataset, seed: int) -> list[Split]:
        test, rest = cut_test_classes(dataset, seed)
        validates = np.arange(len(rest)) < num_aside(self.validation_fraction, len(rest))
        official = annotations_of(dataset).validation_classes
        if official is not None:
            validates = np.isin(rest, official)
        if validates.sum() < 2 or (~validates).sum() < 2:
            raise ValueError(
                f"{len(rest)} classes with two or more images are left for training and "
                f"validation, {len(test)} are kept for the test; at least 4 are needed, two for "
                "each. Add classes, or images to the small ones."
            )
        return [split_of(dataset, rest[~validates], rest[validates], test)]


def num_aside(fraction: float, classes: int) -> int:
    """How many of the training classes are set aside to select on."""
    return max(2, round(fraction * classes))


def enough_fraction(usual: float, classes: int) -> float:
    """The usual share, or the one that sets min(8, n // 3) of n training classes aside where that
    is more; three digits give the number back."""
    least = min(ENOUGH, classes // 3)
    return usual if num_aside(usual, classes) >= least else round(least / classes, 3)


def cut_test_classes(dataset: Dataset, seed: int) -> tuple[IntArray, IntArray]:
    """Test classes, and those with two or more items that are left for training, shuffled."""
    generator = np.random.default_rng([seed, 0x5EED])
    sizes = np.bincount(dataset.labels)
    classes = np.flatnonzero(sizes)
    test = dataset.official_test_classes
    if test is None:
        paired = classes[sizes[classes] > 1]
        test = generator.permutation(paired)[: (len(paired) + 1) // 2]
    rest = np.setdiff1d(classes, test)
    return test, generator.permutation(rest[sizes[rest] > 1])


def split_of(dataset: Dataset, train: IntArray, validation: IntArray, test: IntArray) -> Split:
    """The items of train, validation and test classes, and which of the last ask and answer."""
    parts = [items_of(dataset.labels, each) for each in (train, validation, test)]
    annotations = annotations_of(dataset)
    flags = [
        None if f is None else np.flatnonzero(f[parts[2]])
        for f in (annotations.query, annotations.gallery)
    ]
    for positions, name in zip(flags, ("query", "gallery"), strict=True):
        if positions is not None and not len(positions):
            raise ValueError(f"no test item of {dataset.name} is marked as {name}")
    request, answering = (
        np.arange(len(parts[2])) if positions is None else positions for positions in flags
    )
    labels = dataset.labels[parts[2]]
    lost = np.setdiff1d(labels[request], labels[answering])
    if len(lost):
        name = dataset.label_names[int(lost[0])]
        raise ValueError(
            f"{len(lost)} classes of {dataset.name} have queries but nothing in the gallery, the "
            f"first is {name!r}: no answer to them could be right"
        )
    return Split(*parts, *flags)


def items_of(labels: IntArray, classes: IntArray) -> IntArray:
    """Positions of all items of some classes, in order."""
    return np.flatnonzero(np.isin(labels, classes)).astype(np.int64)


def of_domain(dataset: Dataset, split: Split, domain: str) -> Split:
    """The split with training and validation items of one domain; all that are tested stay."""
    codes = domains_of(dataset)
    if codes is None:
        raise ValueError(
            f"train_domain={domain} needs data of several domains: `unseen train birds/,cars/`, or "
            "a table with a column `domain`"
        )
    names = annotations_of(dataset).label_names[DOMAIN]
    is_own = codes == names.index(known(domain, names, "domain"))
    train, validation = (items[is_own[items]] for items in (split.train, split.validation))
    counts = [len(np.unique(dataset.labels[items])) for items in (train, validation)]
    if min(counts) < 2:
        raise ValueError(
            f"{domain} has {counts[0]} classes to train on and {counts[1]} to select on, and each "
            "needs 2: choose another validation_fraction"
        )
    return replace(split, train=train, validation=validation)
