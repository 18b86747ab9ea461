import math

import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from unseen.metrics.nmi import Nmi

LABELS, CLUSTERS = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2])


def test_worked_example() -> None:
    """The arithmetic mean; the geometric one, or the slip in Roth's equation 27, give others."""
    result = Nmi()(CLUSTERS, LABELS)
    assert result == pytest.approx(0.5158, abs=5e-5)
    information = result * (math.log(2) + math.log(3)) / 2
    geometric = information / math.sqrt(math.log(2) * math.log(3))
    assert geometric == pytest.approx(0.5295, abs=5e-5)
    assert information / (2 * (math.log(2) + math.log(3))) == pytest.approx(0.1290, abs=5e-5)


def test_equals_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        clusters = torch.randint(0, 9, (60,), generator=generator)
        labels = torch.randint(0, 7, (60,), generator=generator) * 2**40
        expected = normalized_mutual_info_score(labels, clusters)
        assert Nmi()(clusters, labels) == pytest.approx(expected)


def test_value_of_an_item_is_its_influence() -> None:
    """Many copies of one item move the metric as its value says."""
    generator = torch.Generator().manual_seed(1)
    clusters = torch.randint(0, 4, (200,), generator=generator)
    labels = (clusters + (torch.rand(200, generator=generator) < 0.3)) % 4
    values = Nmi().on_items(clusters, labels)
    many = torch.arange(200).repeat(500)
    before = Nmi()(clusters[many], labels[many])
    for item in (0, 17, 93):
        more = torch.cat([many, torch.tensor([item] * 10)])
        slope = (Nmi()(clusters[more], labels[more]) - before) / (10 / len(more))
        assert slope == pytest.approx(float(values[item]) - before, rel=0.02, abs=1e-3)


def test_one_cluster_and_one_class() -> None:
    one = torch.zeros(4, dtype=torch.int64)
    assert Nmi()(one, one) == 1.0
    assert Nmi()(one, torch.tensor([0, 0, 1, 1])) == 0.0


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="as many"):
        Nmi()(torch.zeros(3), torch.zeros(4))
