"""Names are answered with the nearest; packages of methods show their classes without imports."""

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
