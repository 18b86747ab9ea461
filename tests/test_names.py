"""Names are answered with the nearest; packages of methods show their classes without imports."""

from pathlib import Path

import pytest

from unseen import losses, names, networks


def test_a_long_list_is_not_recited() -> None:
    words = [f"word{number}" for number in range(500)]
    told = names.advice("nothing like it", words)
    assert told.endswith("(500 in all)")
    assert told.count(",") < 60


def test_classes_are_found_in_their_files() -> None:
    assert losses.MultiSimilarity().beta == 50.0
    assert "ProxyNca" in dir(losses)
    assert networks.EmbeddingNetwork.__module__ == "unseen.networks.network"


def test_a_misspelt_class_is_answered() -> None:
    with pytest.raises(AttributeError, match="did you mean MultiSimilarity"):
        _ = losses.MultiSimilarty


def test_a_misspelt_path_is_answered_part_by_part(tmp_path: Path) -> None:
    (tmp_path / "Photos of 2024" / "birds").mkdir(parents=True)
    (tmp_path / "Photos of 2024" / "trees-margin-seed0").mkdir()
    (tmp_path / "runs").write_text("a file")
    for wrong, right in [
        ("photos of 2024/birds", "Photos of 2024/birds"),
        ("Photos of 2042/brids", "Photos of 2024/birds"),
        ("Photos of 2024/trees", "Photos of 2024/trees-margin-seed0"),
    ]:
        assert names.near_path(tmp_path / wrong) == f"; did you mean {tmp_path / right}?"
    for path in ("Photos of 2024", "Photos of 2024/maps", "nothing like it", "runs/brids"):
        assert names.near_path(tmp_path / path) == ""
