"""Shift: one of nine splits of growing distance between training and test classes.

The data's own halves (official, or drawn from `split_seed`) are step 3 or so: before it classes are
mixed, after it they are sorted to two sides and those between are left out (`evaluation/shift.py`).
All seeds train, select and are tested on the same classes. The descriptors that decide are the
features themselves, or those that `unseen data shift` computed of pictures and wrote to a table.
Validation classes are drawn at random from the training classes of the step. Classes that change
places have no marks of queries and gallery: every test item asks and answers.

Paper    T. Milbich, K. Roth et al., Characterizing Generalization under Out-Of-Distribution Shifts
         in Deep Metric Learning, NeurIPS 2021, https://arxiv.org/abs/2107.09562
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unseen.contracts import Dataset, FeatureDataset, IntArray, Split
from unseen.data.pictures.stored import cache_folder
from unseen.evaluation.shift import ShiftLadder, read_ladder, shift_ladder
from unseen.protocols.half_split import HalfSplit, cut_test_classes, items_of, num_aside

VERSION = 1  # of ladders in the cache


@dataclass(frozen=True)
class Shift:
    """step: from 1, the smallest shift. table: a file of `unseen data shift`; None: the ladder is
    made of the data's features. validation_share, split_seed: as in `fixed_validation`."""

    step: int = 1
    table: str | None = None
    validation_share: float = 0.15
    split_seed: int = 0

    def __post_init__(self) -> None:
        HalfSplit(self.validation_share)
        if self.step < 1:
            raise ValueError(f"step must be at least 1, got {self.step}")

    def __call__(self, dataset: Dataset, seed: int) -> list[Split]:
        chosen = self.ladder(dataset).at(self.step)
        generator = np.random.default_rng([self.split_seed, 0x5EED])
        train = generator.permutation(chosen.train)
        aside = num_aside(self.validation_share, len(train))
        if len(train) - aside < 2:
            raise ValueError(f"step {self.step} has {len(train)} training classes: 4 are needed")
        parts = (train[aside:], train[:aside], chosen.test)
        return [Split(*(items_of(dataset.labels, part) for part in parts))]

    def fewest_classes(self, dataset: Dataset) -> int:
        """To train and to select on, of all steps: by it batches are made alike on all of them."""
        return min(len(each.train) for each in self.ladder(dataset).steps)

    def ladder(self, dataset: Dataset) -> ShiftLadder:
        """All steps: of the table, or of the features, which are compared once and kept."""
        if self.table is not None:
            return read_ladder(Path(self.table), dataset.label_names)
        if not isinstance(dataset, FeatureDataset):
            raise ValueError(
                "protocol=shift needs descriptors of the pictures: `unseen data shift DATA --out "
                "ladder.csv` computes them once, then shift.table=ladder.csv"
            )
        known = f"{VERSION} {self.split_seed} {dataset.fingerprint()}"
        kept = cache_folder() / "shift" / f"{hashlib.sha256(known.encode()).hexdigest()[:24]}.csv"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            own = own_halves(dataset, self.split_seed)
            of = f"features of {dataset.name}"
            shift_ladder(dataset.features, dataset.labels, own, of).write(kept, dataset.label_names)
        return read_ladder(kept, dataset.label_names)


def own_halves(dataset: Dataset, split_seed: int) -> tuple[IntArray, IntArray]:
    """Training and test classes as the half split cuts them, without those of a single item."""
    test, rest = cut_test_classes(dataset, split_seed)
    sizes = np.bincount(dataset.labels)
    return np.sort(rest), np.sort(test[sizes[test] > 1])
