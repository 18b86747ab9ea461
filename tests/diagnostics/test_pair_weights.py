"""Pair weights against derivatives known by hand."""

import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.pair_weights import PairWeights
from unseen.losses.contrastive import ContrastiveLoss
from unseen.losses.multi_similarity import MultiSimilarityLoss
from unseen.losses.proxy_anchor import ProxyAnchorLoss


def batch(dimension: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(6).repeat_interleave(3)
    centers = torch.randn(6, dimension, generator=generator, dtype=torch.float64)
    noise = torch.randn(18, dimension, generator=generator, dtype=torch.float64)
    return centers[labels] + noise, labels


def slow(x: Tensor, labels: Tensor, alpha: float, beta: float, base: float) -> dict[str, float]:
    """|dL/dS| of multi-similarity summed over each kind of pair, both orders of a pair together."""
    x = torch.nn.functional.normalize(x)
    sim, num = (x @ x.T).tolist(), len(x)
    sums = {"positive": 0.0, "negative": 0.0}
    for i in range(num):
        own = [j for j in range(num) if j != i and labels[j] == labels[i]]
        others = [j for j in range(num) if labels[j] != labels[i]]
        for kind, pairs, scale in (("positive", own, -alpha), ("negative", others, beta)):
            terms = [math.exp(scale * (sim[i][j] - base)) for j in pairs]
            sums[kind] += sum(terms) / (1 + sum(terms)) / num
    return sums


@pytest.mark.parametrize("dimension", [64, 5], ids=["room", "fewer dimensions than items"])
def test_multi_similarity_by_hand(dimension: int) -> None:
    x, labels = batch(dimension)
    result = PairWeights(MultiSimilarityLoss(2.0, 50.0, 0.5))(x, labels)
    expected = slow(x, labels, 2.0, 50.0, 0.5)
    for kind, value in expected.items():
        assert result[f"{kind}_weight"].sum().item() == pytest.approx(value, rel=0.02)
    assert len(result["positive_similarity"]) == 6 * 3
    assert len(result["negative_similarity"]) == 18 * 17 // 2 - 18


def test_contrastive_on_cosines_weighs_all_active_pairs_alike() -> None:
    x, labels = batch()
    result = PairWeights(ContrastiveLoss(distance="cosine", neg_margin=1.0))(x, labels)
    assert result["positive_weight"].std() < 1e-9
    active = result["negative_similarity"] > 0.01  # 1 - s below the margin
    assert result["negative_weight"][active].std() < 1e-9
    assert result["negative_weight"][result["negative_similarity"] < -0.01].max() < 1e-12


def test_class_parameters_and_whole_data_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="ProxyAnchorLoss compares items with class parameters"):
        PairWeights(ProxyAnchorLoss(6, 64))
    with pytest.raises(ValueError, match="at most 1024"):
        PairWeights()(torch.randn(1025, 2), torch.arange(1025))
