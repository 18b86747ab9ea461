import math
from typing import Any

import pytest

from unseen.metrics.baks import Baks


@pytest.mark.parametrize("threshold", [-0.2, 0.125, 0.5])
def test_equals_counting_class_by_class(open_answers: Any, threshold: float) -> None:
    for seed in range(4):
        given, rows = open_answers(seed, threshold)
        fractions = []
        for label in {label for _, _, is_known, label in rows if is_known}:
            own = [row for row in rows if row[3] == label]
            fractions.append(
                sum(right and similarity >= threshold for similarity, right, _, _ in own) / len(own)
            )
        assert Baks()(given) == pytest.approx(sum(fractions) / len(fractions))


def test_nothing_without_a_threshold(open_answers: Any) -> None:
    assert math.isnan(Baks()(open_answers(0)[0]))
