"""No table or figure of a source is forgotten."""

import re
from pathlib import Path

import pytest
import torch

from unseen.reproductions import numbers, source_items
from unseen.reproductions.published_study import names

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"
ALL = {  # those that show a measurement
    "Vo and Hays 2019": ([1, 2, 3], range(1, 9)),
    "Li et al. 2020": ([1], [1, 3, 4, 5, 6, 7, 8, 9]),
    "Roth et al. 2020": (range(1, 10), [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12]),
    "Jacob et al. 2019": (range(1, 6), [1, 3]),
    "Psomas 2020": (range(6, 22), [18, *range(27, 32)]),
}


def numbered(text: str, kind: str) -> set[int]:
    """tables 2 and 4 to 6, figure 1 -> {2, 4, 5, 6} of tables"""
    result = set()
    for part in re.findall(rf"{kind}s? ([\d,and to]+)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", part):
            result |= set(range(int(first), int(last or first) + 1))
    return result


@pytest.mark.parametrize("source", ALL)
def test_every_table_and_figure_has_a_row(source: str) -> None:
    mine = [item.item for item in source_items.ITEMS if item.source == source]
    for kind, wanted in zip(("table", "figure"), ALL[source], strict=True):
        assert set().union(*(numbered(text, kind) for text in mine)) == set(wanted)


def test_rows_name_studies_that_exist_or_say_why_there_is_none() -> None:
    for item in source_items.ITEMS:
        assert (item.study in names() and item.section) if item.study else item.missing
    assert {item.study for item in source_items.ITEMS if item.study} == set(names())
    assert all(
        row[3].startswith("unseen ") or row[5] != "–" for row in source_items.item_table().rows
    )


def test_the_page_lists_them() -> None:
    for table in (source_items.item_table(), source_items.claim_table()):
        assert "\n".join(table.markdown()) in PAGE.read_text()


@pytest.mark.slow
def test_the_page_is_what_the_code_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))  # no BN-Inception
    assert PAGE.read_text() == source_items.filled(PAGE.read_text())


def test_published_numbers_are_all_of_some_source() -> None:
    """A table that is stored is one that a page shows."""
    assert {name.partition("_")[0] for name in numbers.names()} == {
        "claims", "density", "horde", "items", "notes", "revisit", "thesis", "vo"
    }  # fmt: skip
