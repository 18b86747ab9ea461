from types import SimpleNamespace

import pytest
import torch

from unseen.miners.soft_hard import SoftHardMiner

UNBALANCED = torch.tensor([2, 0, 0, 1, 0, 2, 1, 4, 0, 0, 1, 2])


def test_on_the_fixed_batch(spec: SimpleNamespace) -> None:
    miner, seen = SoftHardMiner(), torch.zeros(6, 6)
    for _ in range(1200):
        mined = miner(spec.T, spec.labels)
        assert mined.anchor.tolist() == [0, 1, 2, 3, 4, 5]
        assert mined.positive.tolist() == [1, 0, 3, 2, 5, 4]
        assert mined.negative[2] == 1
        seen[mined.anchor, mined.negative] += 1
    for anchor in (0, 1, 3, 4, 5):
        count = seen[anchor][spec.labels != spec.labels[anchor]]
        assert ((count - 300).abs() < 5 * (1200 * 0.25 * 0.75) ** 0.5).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_references", [False, True])
def test_draws_uniformly_from_the_hard_sets_of_a_slow_loop(
    seed: int, with_references: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    refs, ref_labels = None, None
    columns, column_labels = x, UNBALANCED
    if with_references:
        columns = refs = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        column_labels = ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5, 2, 0])
    miner, rounds = SoftHardMiner(seed=seed), 600
    drawn: dict[int, list[tuple[int, int]]] = {}
    for _ in range(rounds):
        mined = miner(x, UNBALANCED, refs, ref_labels)
        for a, p, n in torch.stack(tuple(mined), dim=1).tolist():
            drawn.setdefault(a, []).append((p, n))
    for a in range(12):
        dist = [float((x[a] / x[a].norm() - c / c.norm()).norm()) for c in columns]
        same = [j for j in range(len(columns)) if column_labels[j] == UNBALANCED[a]]
        positives = [j for j in same if with_references or j != a]
        negatives = [j for j in range(len(columns)) if j not in same]
        if not positives:
            assert a not in drawn
            continue
        hard_p = [p for p in positives if dist[p] > min(dist[n] for n in negatives)] or positives
        hard_n = [n for n in negatives if dist[n] < max(dist[p] for p in positives)] or negatives
        for hard, got in zip((hard_p, hard_n), zip(*drawn[a], strict=True), strict=True):
            assert set(got) <= set(hard)
            for j in hard:
                error = (rounds / len(hard) * (1 - 1 / len(hard))) ** 0.5
                assert abs(got.count(j) - rounds / len(hard)) <= 5 * error + 1e-9


def test_a_batch_of_one_class_gives_nothing() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert all(len(t) == 0 for t in SoftHardMiner()(x, torch.zeros(4, dtype=torch.long)))
