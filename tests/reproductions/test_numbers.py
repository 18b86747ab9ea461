"""The published tables are readable and complete."""

import pytest

from unseen.reproductions import numbers as published


def test_every_table_has_rows_and_numbers() -> None:
    assert len(published.names()) == 17
    for name in set(published.names()) - {"claims", "items", "notes", "vo_hays_claims"}:
        rows = published.table(name)
        assert len(rows) > 2
        assert any(isinstance(value, float) for row in rows for value in row.values())


def test_empty_cells_are_none_and_unknown_tables_are_named() -> None:
    first = published.table("revisit_objectives")[0]
    assert first["approach"] == "Imagenet"
    assert first["r1_std"] is None
    with pytest.raises(ValueError, match="did you mean thesis_losses"):
        published.table("thesis_loses")


def test_numbers_are_shown_as_printed_with_their_deviation() -> None:
    row = next(r for r in published.table("revisit_objectives") if r["approach"] == "Angular")
    assert isinstance(row["r1"], published.Printed)
    assert row["r1"].text == "62.10 ±0.27"
    (own, *_) = published.table("thesis_own_loss")[1:]
    assert isinstance(own["v3"], published.Printed)
    assert own["v3"].text == "94.00"  # two decimals in its table
