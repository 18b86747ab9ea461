import pytest
import torch

from unseen.metrics.f1 import F1


def by_pairs(clusters: list[int], labels: list[int]) -> float:
    right = result = wanted = 0
    for i in range(len(labels)):
        for j in range(i):
            right += clusters[i] == clusters[j] and labels[i] == labels[j]
            result += clusters[i] == clusters[j]
            wanted += labels[i] == labels[j]
    return 2 * right / (result + wanted) if result + wanted else 0.0


def test_worked_example() -> None:
    result = F1()(torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert result == pytest.approx(0.4444, abs=5e-5)


def test_equals_counting_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        clusters = torch.randint(0, 6, (30,), generator=generator)
        labels = torch.randint(0, 5, (30,), generator=generator)
        expected = by_pairs(clusters.tolist(), labels.tolist())
        assert F1()(clusters, labels) == pytest.approx(expected)


def test_no_pair_at_all() -> None:
    assert F1()(torch.arange(4), torch.arange(4)) == 0.0


def test_values_per_item_average_to_the_metric() -> None:
    clusters, labels = torch.arange(40) // 7, torch.arange(40) // 5
    values = F1().on_items(clusters, labels)
    assert float(values.mean()) == pytest.approx(by_pairs(clusters.tolist(), labels.tolist()))
    assert values.std() > 0
