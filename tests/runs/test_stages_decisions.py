"""Which stage is due, and which is selected."""

import numpy as np
import pytest
import torch

from unseen.core.statistics import Interval
from unseen.runs.run_stages import gain_of, is_better, is_due


def test_the_gain_is_that_of_the_same_queries_and_its_error_that_of_classes() -> None:
    rng = np.random.default_rng(0)
    labels = torch.arange(12).repeat_interleave(20)
    before = torch.from_numpy((rng.random(240) < 0.6).astype(np.float64))
    after = torch.maximum(before, torch.from_numpy((rng.random(240) < 0.3).astype(np.float64)))
    gain, error = gain_of(before, after, labels, 0)
    each = np.array([float((after - before)[labels == c].mean()) for c in range(12)])
    assert gain.value == pytest.approx(each.mean())
    assert error == pytest.approx(each.std() / np.sqrt(12), rel=0.2)
    assert gain.low < gain.value - error
    same_as_before, no_error = gain_of(before, before, labels, 0)
    assert (same_as_before.value, no_error) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("recall", "error", "ranked", "is_kept"),
    [
        (0.02, 0.01, -0.1, True),  # recall@1 has told
        (0.005, 0.01, 0.03, True),  # birds: nearly all are found anyhow
        (-0.005, 0.01, 0.03, True),
        (0.005, 0.01, 0.01, False),
        (-0.02, 0.01, 0.1, False),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_mean_precision_decides_where_recall_cannot_tell(
    recall: float, error: float, ranked: float, is_kept: bool
) -> None:
    def gain(value: float, error: float) -> tuple[Interval, float]:
        return Interval(value, value - 2 * error, value + 2 * error), error

    assert is_better(gain(recall, error), gain(ranked, 0.02)) is is_kept


def test_a_stage_is_due_after_what_it_names() -> None:
    kept = {"head", "bigger_backbone_head"}
    assert is_due("any", False, kept)
    assert is_due("gain", True, kept)
    assert not is_due("gain", False, kept)
    assert is_due("no gain", False, kept)
    assert is_due("bigger_backbone_head", False, kept)
    assert not is_due("full", True, kept)
