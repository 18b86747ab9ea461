"""What training added: said first where it is nothing, with what to try."""

import numpy as np
import pytest
import torch

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.findings import Finding
from unseen.evaluation.gain import Gain, Start, gains, verdict

PRETRAINED = Start("ImageNet weights, head at its start", "pretrained")


def said(*ends: float, keeps_start: bool = False, **others: Gain) -> Finding:
    """Of recall@1 before and after, and the interval of the difference."""
    found = verdict(PRETRAINED, {"recall@1": Gain(*ends), **others}, keeps_start)
    assert found is not None
    return found


def test_the_interval_is_that_of_paired_differences_of_whole_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(8)
    centres = torch.randn(12, 6, generator=generator)[labels]
    before = evaluate(centres + 2.0 * torch.randn(96, 6, generator=generator), labels)
    after = evaluate(centres + 0.7 * torch.randn(96, 6, generator=generator), labels)
    found = gains(before, after, labels, seed=0)
    assert set(found) == {"recall@1", "map_at_r"}
    one = found["recall@1"]
    difference = (after.per_query["recall@1"] - before.per_query["recall@1"]).numpy()
    by_class = difference.reshape(12, 8).mean(axis=1)
    rng = np.random.default_rng(1)
    drawn = [by_class[rng.integers(0, 12, 12)].mean() for _ in range(4000)]
    assert one.after - one.before == pytest.approx(difference.mean())
    assert [one.low, one.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)


def test_a_gain_beyond_its_interval_is_good() -> None:
    found = said(0.5, 0.6, 0.04, 0.15)
    assert found.level == "good"
    assert "+10.0 points" in found.text


@pytest.mark.parametrize(
    ("ends", "keeps_start", "words"),
    [
        ((0.908, 0.80, -0.15, -0.06), False, "Training made it worse"),
        ((0.908, 0.90, -0.03, 0.02), False, "Below its own start"),
        ((0.944, 0.944, 0.0, 0.0), True, "no epoch was better than the start, which is kept"),
        ((0.944, 0.95, -0.01, 0.02), False, "Training added nothing beyond chance"),
    ],
)
def test_no_gain_is_a_warning_that_names_the_start_and_a_remedy(
    ends: tuple[float, float, float, float], keeps_start: bool, words: str
) -> None:
    found = said(*ends, keeps_start=keeps_start)
    assert found.level == "warning"
    assert words in found.text
    assert "ImageNet weights, head at its start" in found.text
    assert "freeze_until=pooled" in found.remedy


def test_better_answers_after_the_first_are_not_nothing() -> None:
    found = said(0.99, 0.99, -0.01, 0.01, map_at_r=Gain(0.5, 0.6, 0.05, 0.15))
    assert found.level == "note"
    assert "mAP@R 50.0% to 60.0%" in found.text
    assert "finds nearly all" in found.remedy


def test_without_recall_there_is_no_verdict() -> None:
    assert verdict(PRETRAINED, {"map_at_r": Gain(0.5, 0.6, 0.05, 0.15)}, False) is None
