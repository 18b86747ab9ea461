"""Claims compare intervals with what is published."""

import math

import pytest

from unseen.reproductions.claims import Claim, claims_section, joined_section, plain_rows
from unseen.reproductions.effects import Finding, gap, of_seeds


@pytest.mark.parametrize(
    ("finding", "word"),
    [
        (Finding("x", 2.0, 1.0, 3.0, 2.5), "holds"),
        (Finding("x", 2.0, 1.0, 3.0), "holds"),
        (Finding("x", 2.0, 1.0, 3.0, expected=-1), "opposite"),
        (Finding("x", -2.0, -3.0, -1.0, expected=-1), "holds"),
        (Finding("x", 2.0, 1.0, 3.0, -1.0), "opposite"),
        (Finding("x", 2.0, 1.0, 3.0, 9.0), "smaller"),
        (Finding("x", 2.0, 1.0, 3.0, 0.5), "larger"),
        (Finding("x", 2.0, -1.0, 3.0, 2.0), "no significant difference"),
        (Finding("x", 2.0), "inconclusive"),
        (Finding("x", 0.5, -0.5, 1.5, alike=2.0), "holds"),
        (Finding("x", 0.5, -0.5, 2.5, alike=2.0), "no significant difference"),
        (Finding("x", 1.5, 0.5, 2.5, alike=2.0), "opposite"),
        (Finding("x", 2.0, 1.0, 3.0, 2.5, why="not tuned"), "inconclusive"),
    ],
)
def test_words(finding: Finding, word: str) -> None:
    assert finding.word == word


def test_no_headline_where_checks_fail() -> None:
    failing = Finding("x", 2.0, 1.0, 3.0, 2.5, why="not tuned; 1 of 3 seeds")
    section = claims_section([Claim("D01", [failing])], "glyphs")
    assert section.result == ["Every claim is inconclusive on glyphs: not tuned; 1 of 3 seeds."]
    both = claims_section([Claim("D01", [failing, Finding("y", 2.0, 1.0, 3.0)])], "cub200")
    assert both.result == ["1 of 2 claimed effects have a conclusion: 1 holds."]
    assert both.tables[0].rows[0][0].startswith("D01: The density term raises recall")  # type: ignore[union-attr]


def test_two_seeds_decide_nothing() -> None:
    numbers = {(0, 0): 1.0, (1, 0): 1.1}
    assert of_seeds("x", numbers, ()).why == "2 of 3 seeds"
    assert of_seeds("x", numbers | {(2, 0): 1.2}, (), 1.1).word == "holds"
    assert of_seeds("x", {}, (), 1.1).why == "not measured"


def test_data_sets_stand_side_by_side() -> None:
    rows = plain_rows([Claim("D01", [Finding("contrastive", 2.0, 1.0, 3.0, 3.63)])])
    assert joined_section({"cub200": rows}) == []
    (section,) = joined_section({"cub200": rows, "cars196": []})
    (row,) = section.tables[0].rows
    assert [str(cell) for cell in row] == [
        "D01", "contrastive, points", "+3.63", "+2.00 (+1.00 … +3.00)", "smaller", "–", "–", "–"
    ]  # fmt: skip


def test_a_gap_needs_both_values() -> None:
    theirs = {"a": {"recall@1": 60.0}, "b": {"recall@1": 62.5}, "c": {}}
    assert gap(theirs, "a", "b") == 2.5
    assert math.isnan(gap(theirs, "a", "c"))
