import math
from typing import Any

import pytest

from unseen.metrics.baus import Baus


@pytest.mark.parametrize("threshold", [-0.2, 0.125, 0.5])
def test_equals_counting_class_by_class(open_answers: Any, threshold: float) -> None:
    for seed in range(4):
        given, rows = open_answers(seed, threshold)
        fractions = []
        for label in {label for _, _, is_known, label in rows if not is_known}:
            own = [row for row in rows if row[3] == label]
            fractions.append(sum(similarity < threshold for similarity, _, _, _ in own) / len(own))
        assert Baus()(given) == pytest.approx(sum(fractions) / len(fractions))


def test_nothing_without_a_threshold(open_answers: Any) -> None:
    assert math.isnan(Baus()(open_answers(0)[0]))
