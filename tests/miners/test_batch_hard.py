from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.miners import BatchHardMiner as PeerMiner

from unseen.miners.batch_hard import BatchHardMiner

UNBALANCED = torch.tensor([2, 0, 0, 1, 0, 2, 1, 4, 0, 0, 1, 2])


def test_on_the_fixed_batch_it_gives_its_triplets(spec: SimpleNamespace) -> None:
    mined = BatchHardMiner()(spec.T, spec.labels)
    assert [t.tolist() for t in mined] == [t.tolist() for t in spec.TR]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("with_references", [False, True])
def test_equals_a_slow_loop(seed: int, with_references: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    refs, ref_labels = None, None
    columns, column_labels = x, UNBALANCED
    if with_references:
        columns = refs = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        column_labels = ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5, 2, 0])
    expected = []
    for a in range(12):
        dist = [float((x[a] / x[a].norm() - c / c.norm()).norm()) for c in columns]
        same = [j for j in range(len(columns)) if column_labels[j] == UNBALANCED[a]]
        positives = [j for j in same if with_references or j != a]
        negatives = [j for j in range(len(columns)) if j not in same]
        if positives and negatives:
            hardest = max(positives, key=dist.__getitem__), min(negatives, key=dist.__getitem__)
            expected.append((a, *hardest))
    mined = BatchHardMiner()(x, UNBALANCED, refs, ref_labels)
    assert [tuple(t) for t in torch.stack(tuple(mined), dim=1).tolist()] == expected


def test_equals_pytorch_metric_learning() -> None:
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.arange(60) % 13
    theirs, ours = PeerMiner()(x, y), BatchHardMiner()(x, y)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_batch_of_one_class_gives_nothing() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    assert all(len(t) == 0 for t in BatchHardMiner()(x, torch.zeros(4, dtype=torch.long)))
