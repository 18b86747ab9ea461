from typing import Any

import pytest

from unseen.metrics.dir_at_far import DirAtFar


@pytest.mark.parametrize("far", [0.0, 0.1, 0.5, 1.0])
def test_equals_trying_every_threshold(open_answers: Any, far: float) -> None:
    for seed in range(5):
        given, rows = open_answers(seed)
        unknown = [s for s, _, is_known, _ in rows if not is_known]
        known = [(s, right) for s, right, is_known, _ in rows if is_known]
        best = 0.0
        for t in {s for s, _, _, _ in rows}:
            if sum(s >= t for s in unknown) <= far * len(unknown):
                best = max(best, sum(s >= t and right for s, right in known) / len(known))
        assert DirAtFar(far)(given) == pytest.approx(best)


def test_a_wrong_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="far must lie in"):
        DirAtFar(-0.1)
