"""Splits of growing shift."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unseen.core.contracts import Dataset, FeatureDataset, IntArray, Split
from unseen.data.images.array_files import cache_folder
from unseen.evaluation.shift_splits import ShiftSplits, read_shift_splits, shift_splits
from unseen.protocols.half_split import HalfSplit, cut_test_classes, items_of, num_aside

VERSION = 1  # of stages in the cache


@dataclass(frozen=True)
class Shift:
    """Shift: one of nine splits of growing distance between training and test classes.

    The data's own halves (official, or drawn from `split_seed`) are step 3 or so: before it classes
    are mixed, after it they are sorted to two sides and those between are left out
    (`evaluation/shift_splits.py`). All seeds train, select and are tested on the same classes. The
    descriptors that decide are the features themselves, or those that `unseen data shift` computed
    of images and wrote to a table. Validation classes are drawn at random from the training classes
    of the step. Classes that change places have no marks of queries and gallery: every test item
    asks and answers.

    Paper:
        T. Milbich, K. Roth et al., Characterizing Generalization under Out-Of-Distribution Shifts
        in Deep Metric Learning, NeurIPS 2021, https://arxiv.org/abs/2107.09562

    Args:
        step: from 1, the smallest shift.
        table: a file of `unseen data shift`; None: the splits are made from the data's features.
        validation_fraction: the share of training classes set aside to select on, as in
            `fixed_validation`.
        split_seed: draws the classes, as in `fixed_validation`.

    Example:
        >>> import torch
        >>> from unseen.protocols import Shift
        >>> from unseen.data.in_memory.user_data import as_dataset
        >>> dataset = as_dataset((torch.randn(80, 4), torch.arange(80) // 4))
        >>> [len(split.train) for split in Shift()(dataset, seed=0)]
        [32]
    """

    step: int = 1
    table: str | None = None
    validation_fraction: float = 0.15
    split_seed: int = 0

    def __post_init__(self) -> None:
        HalfSplit(self.validation_fraction)
        if self.step < 1:
            raise ValueError(f"step must be at least 1, got {self.step}")

    def __call__(self, dataset: Dataset, seed: int) -> list[Split]:
        chosen = self.splits(dataset).at(self.step)
        generator = np.random.default_rng([self.split_seed, 0x5EED])
        train = generator.permutation(chosen.train)
        aside = num_aside(self.validation_fraction, len(train))
        if len(train) - aside < 2:
            raise ValueError(f"step {self.step} has {len(train)} training classes: 4 are needed")
        parts = (train[aside:], train[:aside], chosen.test)
        return [Split(*(items_of(dataset.labels, each) for each in parts))]

    def fewest_classes(self, dataset: Dataset) -> int:
        """To train and to select on, of all steps: by it batches are made alike on all of them."""
        return min(len(each.train) for each in self.splits(dataset).steps)

    def splits(self, dataset: Dataset) -> ShiftSplits:
        """All steps: of the table, or of the features, which are compared once and kept."""
        if self.table is not None:
            return read_shift_splits(Path(self.table), dataset.label_names)
        if not isinstance(dataset, FeatureDataset):
            raise ValueError(
                "protocol=shift needs descriptors of the images: `unseen data shift DATA --out "
                "stages.csv` computes them once, then shift.table=stages.csv"
            )
        known = f"{VERSION} {self.split_seed} {dataset.fingerprint()}"
        cached = cache_folder() / "shift" / f"{hashlib.sha256(known.encode()).hexdigest()[:24]}.csv"
        if not cached.exists():
            cached.parent.mkdir(parents=True, exist_ok=True)
            own = own_halves(dataset, self.split_seed)
            of = f"features of {dataset.name}"
            shift_splits(dataset.features, dataset.labels, own, of).write(
                cached, dataset.label_names
            )
        return read_shift_splits(cached, dataset.label_names)


def own_halves(dataset: Dataset, split_seed: int) -> tuple[IntArray, IntArray]:
    """Training and test classes as the half split cuts them, without those of a single item."""
    test, rest = cut_test_classes(dataset, split_seed)
    sizes = np.bincount(dataset.labels)
    return np.sort(rest), np.sort(test[sizes[test] > 1])
