"""Published values beside ours: a verdict needs both."""

import math

import pytest
import torch

from unseen.statistics import compare, over_seeds
from unseen.studies import objectives
from unseen.studies.by_class import class_verdict
from unseen.studies.preset import Ask
from unseen.studies.presets.losses import objectives_plan
from unseen.studies.presets.rho import Gain, _gains_told
from unseen.studies.published_comparison import signed, verdict

DATA = ["cub200", "cars196", "online_products"]
CHANCES = {"cub200": {0.3, 0.35, 0.4}, "cars196": {0.35}, "online_products": {0.15}}


def better_by_classes() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ten classes of four queries, each a little better after than before."""
    before = torch.linspace(0.1, 0.4, 40, dtype=torch.float64)
    return before, before + 0.2 + before / 10, torch.arange(40) // 4


@pytest.mark.parametrize(
    ("published", "said"),
    [
        (1.5, "holds"),
        (-1.5, "opposite"),
        (math.nan, "not published"),
        (0.0, "published without one"),
    ],
)
def test_a_missing_published_value_is_no_verdict(published: float, said: str) -> None:
    assert verdict(over_seeds([0.02, 0.021, 0.019]), published) == said
    assert class_verdict(compare(*better_by_classes()), published) == said


def test_without_a_difference_of_ours_there_is_no_verdict() -> None:
    assert verdict(over_seeds([0.02, -0.021, 0.019]), 1.0) == "not told apart from 0"
    assert verdict(over_seeds([0.02]), 1.0) == "not told apart from 0"
    assert class_verdict(None, 1.0) == "not told apart from 0"
    assert class_verdict(None, math.nan) == "not published"


@pytest.mark.parametrize("data", DATA)
def test_every_switched_objective_has_its_published_gain(data: str) -> None:
    theirs, found = objectives.published(data), objectives.switched(data)
    assert len(found) == 5
    for name, (plain, settings) in found.items():
        gain = theirs[name]["recall@1"] - theirs[plain]["recall@1"]
        assert not math.isnan(gain)
        assert f"p = {settings['miner']['switch']:g})" in name
    assert {s["miner"]["switch"] for _, s in found.values()} == CHANCES[data]


def test_runs_on_cars_take_the_chances_of_cars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ask, "published_data", "cars196")
    variants = objectives_plan(Ask("glyphs")).variants()
    miners = {v.labels["objective"]: v.values["miner"] for v in variants if "miner" in v.values}
    assert miners["R-Margin (D, beta = 0.6, p = 0.35)"]["switch"] == 0.35


def test_the_headline_counts_what_was_published() -> None:
    gain = over_seeds([0.01, 0.02])
    rows = [Gain("one", gain, math.nan, "not published", "not published")]
    words = " ".join(_gains_told(rows, "cars196"))
    assert "nan" not in words
    assert "published on cars196: 0 of 0" in words
    both = " ".join(_gains_told([*rows, Gain("two", gain, 1.25, "open", "open")], "cars196"))
    assert "1 of 1" in both
    assert "+1.2 (two)" in both


def test_a_missing_difference_is_a_dash() -> None:
    assert (signed(math.nan), signed(0.25, 2)) == ("–", "+0.25")
