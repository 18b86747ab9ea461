"""Cross-validation by class."""

from dataclasses import dataclass

import numpy as np

from unseen.core.contracts import Dataset, Split
from unseen.protocols.half_split import cut_test_classes, split_of


@dataclass(frozen=True)
class KFold:
    """K-fold by class: each of k parts of the training classes selects for the others' model once.

    A random permutation of the training classes (drawn from `split_seed`, not from the seed of the
    run) is cut into folds whose sizes differ by at most one class. k models, each selected on its
    own fold, are all tested on the same test classes; report the mean and the sample standard
    deviation of their test scores.

    Paper:
        Psomas' thesis: ten folds on CUB-200-2011

    Args:
        folds: how many; ten in Psomas' thesis.
        split_seed: draws the classes.

    Example:
        >>> import torch
        >>> from unseen.protocols import KFold
        >>> from unseen.data.in_memory.user_data import as_dataset
        >>> dataset = as_dataset((torch.randn(80, 4), torch.arange(80) // 4))
        >>> [len(split.train) for split in KFold(folds=2)(dataset, seed=0)]
        [20, 20]
    """

    folds: int = 10
    split_seed: int = 0

    def __post_init__(self) -> None:
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")

    def __call__(self, dataset: Dataset, seed: int) -> list[Split]:
        test, rest = cut_test_classes(dataset, self.split_seed)
        if len(rest) < 2 * self.folds:  # a fold of one class is always right
            raise ValueError(
                f"{self.folds} folds need {2 * self.folds} training classes with two or more "
                f"images, there are {len(rest)}: lower folds, or add classes"
            )
        parts = np.array_split(rest, self.folds)
        return [
            split_of(dataset, np.concatenate(parts[:i] + parts[i + 1 :]), parts[i], test)
            for i in range(self.folds)
        ]
