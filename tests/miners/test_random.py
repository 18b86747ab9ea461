from types import SimpleNamespace

import pytest
import torch

from unseen.core.tuples import all_triplets, relations
from unseen.miners.random import RandomMiner

UNBALANCED = torch.tensor([2, 0, 0, 1, 0, 2, 1, 4])


def every_triplet(labels: torch.Tensor) -> list[tuple[int, int, int]]:
    number = range(len(labels))
    return [
        (a, p, n)
        for a in number
        for p in number
        for n in number
        if a != p and labels[a] == labels[p] and labels[a] != labels[n]
    ]


def as_list(mined: tuple[torch.Tensor, ...]) -> list[tuple[int, ...]]:
    return [tuple(t) for t in torch.stack(tuple(mined), dim=1).tolist()]


def test_six_distinct_triplets_of_twenty_four(spec: SimpleNamespace) -> None:
    valid = set(every_triplet(spec.labels))
    assert len(valid) == 24
    miner = RandomMiner()
    for _ in range(20):
        mined = as_list(miner(spec.T, spec.labels))
        assert len(mined) == len(set(mined)) == 6
        assert set(mined) <= valid


@pytest.mark.parametrize("labels", [UNBALANCED, torch.arange(30) % 4], ids=["few", "many"])
def test_every_triplet_is_equally_likely(labels: torch.Tensor) -> None:
    """With few triplets by a permutation, with many by drawing until they are distinct."""
    valid = every_triplet(labels)
    miner, rounds = RandomMiner(), 800
    x = torch.zeros(len(labels), 2)
    count = dict.fromkeys(valid, 0)
    for _ in range(rounds):
        mined = as_list(miner(x, labels))
        assert len(set(mined)) == len(mined) == len(labels)
        for triplet in mined:
            count[triplet] += 1  # type: ignore[index]
    fraction = len(labels) / len(valid)
    counts = torch.tensor(list(count.values()), dtype=torch.float64)
    expected = rounds * fraction
    # Pearson's statistic; draws without replacement vary less by the factor 1 - share
    statistic = ((counts - expected) ** 2).sum() / (expected * (1 - fraction))
    freedom = len(valid) - 1
    assert abs(statistic.item() - freedom) < 5 * (2 * freedom) ** 0.5


def test_takes_all_when_there_are_fewer_than_items() -> None:
    labels = torch.tensor([0, 0, 1])
    mined = as_list(RandomMiner()(torch.zeros(3, 2), labels))
    assert sorted(mined) == [(0, 1, 2), (1, 0, 2)]


def test_per_anchor_draws_positive_and_negative_uniformly() -> None:
    mined = RandomMiner(per_anchor=3000)(torch.zeros(8, 2), UNBALANCED)
    positive, negative = relations(UNBALANCED)
    assert torch.bincount(mined.anchor, minlength=8).tolist() == [3000] * 7 + [0]
    for anchor in range(7):
        of_anchor = mined.anchor == anchor
        for drawn, mask in ((mined.positive, positive), (mined.negative, negative)):
            fraction = mask[anchor].double() / mask[anchor].sum()
            count = torch.bincount(drawn[of_anchor], minlength=8)
            error = (3000 * fraction * (1 - fraction)).sqrt()
            assert ((count - 3000 * fraction).abs() <= 5 * error + 1e-9).all()


def test_a_large_batch_gives_distinct_valid_triplets() -> None:
    labels = torch.arange(512) // 4
    mined = RandomMiner(seed=1)(torch.zeros(512, 2), labels)
    assert len(set(as_list(mined))) == 512
    assert (labels[mined.anchor] == labels[mined.positive]).all()
    assert (labels[mined.anchor] != labels[mined.negative]).all()
    assert len(all_triplets(*relations(labels)).anchor) == 512 * 3 * 508


def test_bad_per_anchor() -> None:
    with pytest.raises(ValueError, match="per_anchor"):
        RandomMiner(per_anchor=0)


def test_a_batch_of_one_class_gives_nothing() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert all(len(t) == 0 for t in RandomMiner(per_anchor=2)(x, torch.zeros(4, dtype=torch.long)))
