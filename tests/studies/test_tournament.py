"""The thesis' tournament to the digit; ties, failures and the critical difference by hand."""

import math

import pytest

from unseen.reproductions import numbers as published
from unseen.studies.tournament import critical_difference, tournament

THESIS = {  # total, mean, sample standard deviation of the ranks over 12 experiments
    "ProxyAnchor": (12, 1.00, 0.0),
    "SoftTriple": (38, 3.17, 1.19),
    "MultiSimilarity": (51, 4.25, 2.05),
    "Contrastive": (52, 4.33, 1.72),
    "LiftedStructure": (54, 4.50, 1.88),
    "Margin": (70, 5.83, 1.27),
    "ArcFace": (79, 6.58, 2.31),
    "ProxyNCA": (81, 6.75, 1.66),
    "Triplet": (103, 8.58, 0.51),
    "NPair": (120, 10.0, 0.0),
}


def thesis_scores(dataset: str = "cub200") -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for row in published.table("thesis_losses"):
        if row["dataset"] == dataset and isinstance(row["v1"], float):
            scores.setdefault(f"{row['network']} {row['dim']}", {})[str(row["loss"])] = row["v1"]
    return scores


def test_the_thesis_tournament() -> None:
    result = tournament(thesis_scores())
    assert len(result.experiments) == 12
    assert [place.method for place in result.places] == list(THESIS)
    for place in result.places:
        total, mean, std = THESIS[place.method]
        assert place.total == total
        assert place.mean == pytest.approx(mean, abs=0.005)
        assert place.std == pytest.approx(std, abs=0.005)
    assert sum(place.total for place in result.places) == 660
    assert result.friedman_p < 1e-10


def test_equal_values_share_their_ranks_and_failures_come_last() -> None:
    scores = {"a": {"x": 1.0, "y": 1.0, "z": 0.5, "w": math.nan, "v": math.nan}}
    ranks = {place.method: place.mean for place in tournament(scores).places}
    assert ranks == {"x": 1.5, "y": 1.5, "z": 3.0, "w": 4.5, "v": 4.5}


def test_the_critical_difference_of_the_paper() -> None:
    """Demsar's example: four methods, 14 data sets, q = 2.569, difference 1.25."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(2, 6) == pytest.approx(1.960 * math.sqrt(1 / 6), abs=0.001)


def test_groups_are_the_longest_rows_without_a_significant_difference() -> None:
    order = ["a", "b", "c", "d"]
    scores = {str(i): {name: -float(rank) for rank, name in enumerate(order)} for i in range(6)}
    result = tournament(scores)
    assert result.critical_difference == pytest.approx(1.915, abs=0.001)
    assert result.groups() == [(0, 1), (1, 2), (2, 3)]  # neighbours differ by 1, next ones by 2
    few = tournament({key: scores[key] for key in ("0", "1")})
    assert few.groups() == [(0, 3)]


def test_experiments_with_other_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="same two or more methods"):
        tournament({"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.0, "z": 2.0}})
    with pytest.raises(ValueError, match="at least one experiment"):
        tournament({})
