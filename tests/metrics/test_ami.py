import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.cluster import expected_mutual_information

from unseen.metrics.ami import Ami, expected_information
from unseen.metrics.base import contingency


def test_equals_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        clusters = torch.randint(0, 9, (60,), generator=generator)
        labels = torch.randint(0, 7, (60,), generator=generator)
        expected = adjusted_mutual_info_score(labels, clusters)
        assert Ami()(clusters, labels) == pytest.approx(expected, abs=1e-9)


def test_chance_level_by_shuffling() -> None:
    generator = torch.Generator().manual_seed(2)
    clusters = torch.randint(0, 5, (40,), generator=generator)
    labels = torch.randint(0, 6, (40,), generator=generator)
    _, cluster_size, class_size, _ = contingency(clusters, labels)
    seen = []
    for _ in range(4000):
        cell, cluster, label, total = contingency(
            clusters, labels[torch.randperm(40, generator=generator)]
        )
        seen.append(torch.log(cell * total / (cluster * label)).mean())
    expected = float(expected_information(cluster_size, class_size))
    assert float(torch.stack(seen).mean()) == pytest.approx(expected, abs=0.005)


def test_no_credit_for_chance() -> None:
    """Random clusters, as many as classes: NMI is high when classes are small, AMI is 0."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(300).repeat_interleave(3)
    clusters = torch.randint(0, 300, (900,), generator=generator)
    assert abs(Ami()(clusters, labels)) < 0.02
    assert Ami()(labels, labels) == pytest.approx(1.0)


def test_expectation_is_scikit_learns() -> None:
    table = torch.tensor([[4, 1, 0], [2, 3, 5]])
    labels, clusters = (
        torch.repeat_interleave(i, table.flatten())
        for i in torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
        for i in [i.flatten()]
    )
    _, cluster_size, class_size, _ = contingency(clusters, labels)
    expected = expected_mutual_information(table.numpy(), int(table.sum()))
    assert float(expected_information(cluster_size, class_size)) == pytest.approx(expected)
