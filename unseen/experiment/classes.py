"""Training classes by number, and whole classes at random."""

import numpy as np
import torch
from torch import Tensor

from unseen.contracts import IntArray


def training_classes(labels: IntArray, train: IntArray) -> Tensor:
    """For each label of the data set its training class 0..C-1, or -1."""
    class_of = np.full(int(labels.max()) + 1, -1, dtype=np.int64)
    classes = np.unique(labels[train])
    class_of[classes] = np.arange(len(classes))
    return torch.from_numpy(class_of)


def monitored_items(train: IntArray, labels: IntArray, number: int, seed: int) -> IntArray:
    """Whole training classes at random, about as many pictures as there are for validation: recall
    falls with the size of the gallery, so only equal ones can be compared."""
    return some_classes(train, labels, number, seed)


def some_classes(items: IntArray, labels: IntArray, number: int, seed: int) -> IntArray:
    """Items of whole classes at random, about `number`; all of them where there are no more."""
    classes = np.random.default_rng([seed, 1]).permutation(np.unique(labels[items]))
    sizes = np.bincount(labels[items])[classes]
    kept = classes[: max(2, int(np.searchsorted(np.cumsum(sizes), number)))]
    return items[np.isin(labels[items], kept)]
