"""Training classes by number, and whole classes at random."""

import numpy as np
import torch
from torch import Tensor

from unseen.core.contracts import IntArray


def training_classes(labels: IntArray, train: IntArray) -> Tensor:
    """For each label of the data set its training class 0..C-1, or -1."""
    class_of = np.full(int(labels.max()) + 1, -1, dtype=np.int64)
    classes = np.unique(labels[train])
    class_of[classes] = np.arange(len(classes))
    return torch.from_numpy(class_of)


def some_classes(items: IntArray, labels: IntArray, number: int, seed: int) -> IntArray:
    """Items of whole classes at random, about `number`; all of them where there are no more.

    Training classes are compared on as many images as there are to select or test on: recall falls
    with the size of the gallery.
    """
    classes = np.random.default_rng([seed, 1]).permutation(np.unique(labels[items]))
    sizes = np.bincount(labels[items])[classes]
    selected = classes[: max(2, int(np.searchsorted(np.cumsum(sizes), number)))]
    return items[np.isin(labels[items], selected)]
