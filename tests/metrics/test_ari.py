from itertools import combinations

import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from unseen.metrics.ari import Ari


def slow(clusters: list[int], labels: list[int]) -> float:
    """Pair by pair."""
    pairs = list(combinations(range(len(labels)), 2))
    one = sum(clusters[i] == clusters[j] for i, j in pairs)
    two = sum(labels[i] == labels[j] for i, j in pairs)
    both = sum(clusters[i] == clusters[j] and labels[i] == labels[j] for i, j in pairs)
    chance = one * two / len(pairs)
    return (both - chance) / ((one + two) / 2 - chance)


def test_equals_pairs_one_by_one_and_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        clusters = torch.randint(0, 6, (40,), generator=generator)
        labels = torch.randint(0, 5, (40,), generator=generator) * 2**40
        result = Ari()(clusters, labels)
        assert result == pytest.approx(slow(clusters.tolist(), labels.tolist()))
        assert result == pytest.approx(adjusted_rand_score(labels, clusters))


def test_value_of_an_item_is_its_influence() -> None:
    """Many copies of one item move the metric as its value says."""
    generator = torch.Generator().manual_seed(1)
    clusters = torch.randint(0, 4, (200,), generator=generator)
    labels = (clusters + (torch.rand(200, generator=generator) < 0.3)) % 4
    values = Ari().on_items(clusters, labels)
    many = torch.arange(200).repeat(500)
    before = Ari()(clusters[many], labels[many])
    for item in (0, 17, 93):
        more = torch.cat([many, torch.tensor([item] * 10)])
        slope = (Ari()(clusters[more], labels[more]) - before) / (10 / len(more))
        assert slope == pytest.approx(float(values[item]) - before, rel=0.03, abs=5e-3)


def test_ends() -> None:
    one = torch.zeros(4, dtype=torch.int64)
    assert Ari()(one, one) == 1.0
    assert Ari()(torch.arange(4), torch.arange(4)) == 1.0
    assert Ari()(one, torch.tensor([0, 0, 1, 1])) == 0.0
