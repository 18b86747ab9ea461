from typing import Any

import pytest

from unseen.metrics.fpr_at_tpr import FprAtTpr


@pytest.mark.parametrize("tpr", [0.5, 0.95, 1.0])
def test_equals_trying_every_threshold(open_answers: Any, tpr: float) -> None:
    for seed in range(5):
        given, rows = open_answers(seed)
        known = [s for s, _, is_known, _ in rows if is_known]
        unknown = [s for s, _, is_known, _ in rows if not is_known]
        reached = [t for t in known if sum(s >= t for s in known) >= tpr * len(known) - 1e-9]
        expected = sum(s >= max(reached) for s in unknown) / len(unknown)
        assert FprAtTpr(tpr)(given) == pytest.approx(expected)


def test_a_fraction_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="tpr must lie in"):
        FprAtTpr(0)
