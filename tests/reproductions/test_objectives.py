"""The objectives of Roth et al. have the values of their paper, to the last part."""

import pytest

from unseen.core import registry
from unseen.reproductions.roth import objectives

ALL = objectives.objectives() | {
    name: settings for name, (_, settings) in objectives.switched("cub200").items()
}


@pytest.mark.parametrize("name", ALL)
def test_every_part_has_the_values_of_the_paper(name: str) -> None:
    for key, kind in (("loss", "losses"), ("miner", "miners")):
        part = ALL[name].get(key)
        if part is not None:
            assert "revisit" in registry.entry(kind, part["name"]).presets
            assert part["preset"] == "revisit", f"{key} of {name}"


def test_random_and_semi_hard_triplets_are_those_of_the_text() -> None:
    """One triplet for each sample; no upper bound on the negative's distance."""
    random, semi_hard = (ALL[f"Triplet ({which})"]["miner"] for which in "RS")
    assert registry.create("miners", random["name"], preset=random["preset"]).per_anchor == 1
    made = registry.create("miners", semi_hard["name"], preset=semi_hard["preset"])
    assert made.margin == float("inf")
