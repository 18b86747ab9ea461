"""The published tables are readable and complete."""

import pytest

from unseen.reproductions import numbers as published


def test_every_table_has_rows_and_numbers() -> None:
    assert len(published.names()) == 12
    for name in published.names():
        rows = published.table(name)
        assert len(rows) > 2
        assert any(isinstance(value, float) for row in rows for value in row.values())


def test_empty_cells_are_none_and_unknown_tables_are_named() -> None:
    first = published.table("revisit_objectives")[0]
    assert first["approach"] == "Imagenet"
    assert first["r1_std"] is None
    with pytest.raises(ValueError, match="did you mean thesis_losses"):
        published.table("thesis_loses")
