"""What training added: said first where it is nothing, with what to try."""

import numpy as np
import pytest
import torch

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.findings import Finding
from unseen.evaluation.training_gain import Extent, Gain, Start, conclusion, gains

PRETRAINED = Start("ImageNet weights, head at its start", "pretrained")


def said(
    *ends: float, keeps_start: bool = False, extent: Extent | None = None, **others: Gain
) -> Finding:
    """Of recall@1 before and after, and the interval of the difference."""
    result = conclusion(PRETRAINED, {"recall@1": Gain(*ends), **others}, keeps_start, extent)
    assert result is not None
    return result


def test_the_interval_is_that_of_paired_differences_of_whole_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(8)
    centers = torch.randn(12, 6, generator=generator)[labels]
    before = evaluate(centers + 2.0 * torch.randn(96, 6, generator=generator), labels)
    after = evaluate(centers + 0.7 * torch.randn(96, 6, generator=generator), labels)
    result = gains(before, after, labels, seed=0)
    assert set(result) == {"recall@1", "map_at_r"}
    one = result["recall@1"]
    difference = (after.per_query["recall@1"] - before.per_query["recall@1"]).numpy()
    by_class = difference.reshape(12, 8).mean(axis=1)
    rng = np.random.default_rng(1)
    drawn = [by_class[rng.integers(0, 12, 12)].mean() for _ in range(4000)]
    assert one.after - one.before == pytest.approx(difference.mean())
    assert [one.low, one.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)


def test_a_gain_beyond_its_interval_is_good() -> None:
    result = said(0.5, 0.6, 0.04, 0.15)
    assert result.level == "good"
    assert "+10.0 points" in result.text


@pytest.mark.parametrize(
    ("ends", "keeps_start", "words"),
    [
        ((0.908, 0.80, -0.15, -0.06), False, "Training made it worse"),
        ((0.908, 0.90, -0.03, 0.02), False, "Below its own start, within chance"),
        ((0.944, 0.944, 0.0, 0.0), True, "No epoch was better than the start, which is kept"),
        ((0.944, 0.95, -0.01, 0.02), False, "Training added nothing beyond chance"),
    ],
)
def test_no_gain_is_a_warning_that_names_the_start_and_a_remedy(
    ends: tuple[float, float, float, float], keeps_start: bool, words: str
) -> None:
    result = said(*ends, keeps_start=keeps_start)
    assert result.level == "warning"
    assert words in result.text
    assert "ImageNet weights, head at its start" in result.text
    assert "freeze_until=pooled" in result.remedy


def test_better_answers_after_the_first_are_not_nothing() -> None:
    result = said(0.99, 0.99, -0.01, 0.01, map_at_r=Gain(0.5, 0.6, 0.05, 0.15))
    assert result.level == "note"
    assert result.text.startswith(
        "Training added +10.0 points of mAP@R (95 % interval +5.0 … +15.0"
    )
    assert "Within chance: +0.0 points of recall@1" in result.text
    assert "finds nearly all" in result.remedy


@pytest.mark.parametrize("recall", [(0.60, 0.61, -0.01, 0.02), (0.60, 0.59, -0.02, 0.01)])
@pytest.mark.parametrize("keeps_start", [False, True])
def test_a_gain_in_either_score_is_said_first(
    recall: tuple[float, float, float, float], keeps_start: bool
) -> None:
    result = said(*recall, keeps_start=keeps_start, map_at_r=Gain(0.434, 0.529, 0.061, 0.129))
    assert result.text.startswith("Training added +9.5 points of mAP@R")
    assert "nothing" not in result.text
    assert "Below" not in result.text


def test_recall_comes_first_however_the_file_was_ordered() -> None:
    gains_of = {"map_at_r": Gain(0.4, 0.5, 0.05, 0.15), "recall@1": Gain(0.5, 0.6, 0.05, 0.15)}
    result = conclusion(PRETRAINED, gains_of, False)
    assert result is not None
    assert result.text.index("recall@1") < result.text.index("mAP@R")


def test_a_loss_in_either_score_is_reported_with_a_gain_in_the_other() -> None:
    result = said(0.6, 0.7, 0.05, 0.15, map_at_r=Gain(0.5, 0.4, -0.15, -0.05))
    assert result.level == "note"
    assert result.text.startswith("Training added +10.0 points of recall@1")
    assert "Worse: -10.0 points of mAP@R" in result.text
    result = said(0.6, 0.59, -0.02, 0.01, map_at_r=Gain(0.5, 0.4, -0.15, -0.05))
    assert (result.level, result.text[:22]) == ("warning", "Training made it worse")


NO_TIME = ["no time for the whole network"]
SHORT = Extent("head", 1, 60, 128, 2.0, ["1 of 60 epochs of head"], NO_TIME, enough=4)
SMALL = Extent("head", 60, 60, 128, 5.0, [], NO_TIME, enough=24)


@pytest.mark.parametrize(("extent", "more"), [(SHORT, 20), (SMALL, 24)])
def test_what_the_time_budget_cut_comes_first_and_so_does_more_time(
    extent: Extent, more: int
) -> None:
    result = said(0.6, 0.6, -0.01, 0.01, extent=extent)
    minutes = extent.minutes
    assert result.text.startswith(f"The time budget of {minutes:g} min limited this run: ")
    assert result.text.index((extent.cuts + extent.savings)[0]) < result.text.index("recall@1")
    assert "So far training added nothing beyond chance" in result.text
    assert result.remedy == f"Give it more time first: time_budget={more}."


def test_a_gain_in_too_little_time_is_a_gain_and_the_cut_is_reported() -> None:
    short, small = (said(0.5, 0.6, 0.04, 0.15, extent=extent) for extent in (SHORT, SMALL))
    assert (short.level, small.level) == ("note", "good")
    assert short.text.startswith("The time budget of 2 min limited this run: 1 of 60 epochs of")
    assert "+10.0 points" in short.text
    assert "time" not in small.text


def test_without_recall_there_is_no_conclusion() -> None:
    assert conclusion(PRETRAINED, {"map_at_r": Gain(0.5, 0.6, 0.05, 0.15)}, False) is None
