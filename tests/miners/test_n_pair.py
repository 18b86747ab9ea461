from types import SimpleNamespace

import pytest
import torch

from unseen.core.tuples import relations
from unseen.miners.n_pair import NPairMiner

UNBALANCED = torch.tensor([2, 0, 0, 1, 0, 2, 1, 4, 0, 0, 1, 2])


def test_one_positive_and_all_negatives_of_each_anchor(spec: SimpleNamespace) -> None:
    mined = NPairMiner()(spec.T, spec.labels)
    assert mined.anchor.tolist() == [0, 1, 2, 3, 4, 5]
    assert mined.positive.tolist() == [1, 0, 3, 2, 5, 4]
    _, negative = relations(spec.labels)
    assert torch.equal(torch.stack(mined[2:], dim=1), negative.nonzero())


def test_positives_are_uniform_and_singletons_no_anchors() -> None:
    miner, seen, rounds = NPairMiner(), torch.zeros(12, 12), 1500
    positive, negative = relations(UNBALANCED)
    anchors = [a for a in range(12) if a != 7]
    for _ in range(rounds):
        mined = miner(torch.zeros(12, 2), UNBALANCED)
        assert mined.anchor.tolist() == anchors
        seen[mined.anchor, mined.positive] += 1
    assert mined.anchor_of_negative.tolist() == [
        a for a in anchors for _ in range(int(negative[a].sum()))
    ]
    for a in anchors:
        fraction = positive[a].double() / positive[a].sum()
        error = (rounds * fraction * (1 - fraction)).sqrt()
        assert ((seen[a] - rounds * fraction).abs() <= 5 * error + 1e-9).all()


@pytest.mark.parametrize("with_references", [False, True])
def test_one_random_pair_per_class(with_references: bool) -> None:
    ref_labels = torch.tensor([5, 0, 1, 0, 2, 2, 1, 0]) if with_references else None
    columns = UNBALANCED if ref_labels is None else ref_labels
    references = None if ref_labels is None else torch.zeros(8, 2)
    miner, rounds = NPairMiner(per_class=True), 1500
    seen_anchor, seen_pair = torch.zeros(12), torch.zeros(12, len(columns))
    for _ in range(rounds):
        mined = miner(torch.zeros(12, 2), UNBALANCED, references, ref_labels)
        classes = UNBALANCED[mined.anchor]
        assert sorted(classes.tolist()) == [0, 1, 2]
        assert torch.equal(columns[mined.positive], classes)
        if not with_references:
            assert (mined.positive != mined.anchor).all()
        # the negatives of a class's anchor are the positives of all other classes
        pairs = {
            (a, p)
            for a, c in zip(mined.anchor.tolist(), classes.tolist(), strict=True)
            for p, other in zip(mined.positive.tolist(), classes.tolist(), strict=True)
            if c != other
        }
        got = set(zip(mined.anchor_of_negative.tolist(), mined.negative.tolist(), strict=True))
        assert got == pairs
        seen_anchor[mined.anchor] += 1
        seen_pair[mined.anchor, mined.positive] += 1
    for a in range(12):
        fraction = 0 if a == 7 else 1 / int((UNBALANCED[a] == UNBALANCED).sum())
        assert abs(seen_anchor[a] - rounds * fraction) <= 5 * (rounds * fraction) ** 0.5
        same = columns == UNBALANCED[a]
        if not with_references:
            same[a] = False
        for p in same.nonzero()[:, 0].tolist():
            expected = rounds * fraction / int(same.sum())
            assert abs(seen_pair[a, p] - expected) <= 5 * expected**0.5


def test_per_class_prices_as_cross_entropy_of_anchors_and_positives(spec: SimpleNamespace) -> None:
    a, p, b, n = NPairMiner(per_class=True, seed=2)(spec.U, spec.labels)
    dot = spec.U @ spec.U.T
    expected = torch.nn.functional.cross_entropy(spec.U[a] @ spec.U[p].T, torch.arange(3))
    price = torch.stack(
        [
            torch.log1p(torch.exp(dot[i, n[b == i]] - dot[i, j]).sum())
            for i, j in zip(a, p, strict=True)
        ]
    )
    assert price.mean().item() == pytest.approx(expected.item())


def test_a_batch_of_one_class_gives_nothing() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert all(len(t) == 0 for t in NPairMiner()(x, torch.zeros(4, dtype=torch.long)))
