"""Data sets as samplers see them: positions that are neither sorted nor dense, labels that are any
integers."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from unseen.core.contracts import IntArray

Data = tuple[IntArray, IntArray]


@pytest.fixture
def classes_of() -> Callable[[Sequence[int]], Data]:
    """Items and labels of classes of these sizes."""

    def make(sizes: Sequence[int], seed: int = 0) -> Data:
        generator = np.random.default_rng(seed)
        labels = np.repeat(generator.permutation(5 * len(sizes))[: len(sizes)] * 7 - 9, sizes)
        items = generator.permutation(3 * len(labels))[: len(labels)]
        return items, generator.permutation(labels)

    return make
