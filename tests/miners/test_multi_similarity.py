from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning.miners import MultiSimilarityMiner as PeerMiner
from torch import Tensor

from unseen.core.tuples import Pairs, all_pairs, relations
from unseen.miners.multi_similarity import MultiSimilarityMiner

UNBALANCED = torch.tensor([2, 0, 0, 1, 0, 2, 1, 4, 0, 0, 1, 2])


def as_sets(mined: Pairs) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    a, p, b, n = (t.tolist() for t in mined)
    assert len(set(zip(a, p, strict=True))) == len(a)
    return set(zip(a, p, strict=True)), set(zip(b, n, strict=True))


@pytest.mark.parametrize(
    ("epsilon", "positives", "negatives"),
    [
        (0.1, {(2, 3)}, {(2, 0), (2, 1)}),
        (
            0.4,
            {(1, 0), (2, 3), (3, 2), (4, 5)},
            {(1, 2), (2, 0), (2, 1), (3, 4), (4, 3)},
        ),
    ],
)
def test_on_the_fixed_batch(
    spec: SimpleNamespace,
    epsilon: float,
    positives: set[tuple[int, int]],
    negatives: set[tuple[int, int]],
) -> None:
    assert as_sets(MultiSimilarityMiner(epsilon)(spec.T, spec.labels)) == (positives, negatives)


@pytest.mark.parametrize(
    ("values", "miner", "expected"),
    [
        ({"beta": 40.0}, 0.1, 0.106025),
        ({"beta": 40.0, "average": "paired"}, 0.1, 0.636152),
        ({"alpha": 18.0, "beta": 76.0, "base": 0.8}, 0.4, 0.172080),
        ({"beta": 40.0}, 2.1, 0.394131),
    ],
)
def test_loss_on_kept_pairs(
    spec: SimpleNamespace, values: dict[str, float], miner: float, expected: float
) -> None:
    from unseen.losses.multi_similarity import MultiSimilarityLoss as Loss

    kept = MultiSimilarityMiner(miner)(spec.T, spec.labels)
    price = Loss(**values)(spec.T, spec.labels, kept)  # type: ignore[arg-type]
    assert price.item() == pytest.approx(expected, abs=1e-6)


def test_a_wide_epsilon_keeps_everything(spec: SimpleNamespace) -> None:
    kept = MultiSimilarityMiner(2.1)(spec.T, spec.labels)
    assert as_sets(kept) == as_sets(all_pairs(*relations(spec.labels)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("with_references", [False, True])
def test_equals_a_slow_loop(seed: int, with_references: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    refs, ref_labels = None, None
    columns: Tensor = x
    column_labels: Tensor = UNBALANCED
    if with_references:
        columns = refs = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        column_labels = ref_labels = torch.tensor([0, 0, 1, 1, 1, 3, 5, 2, 0])
    kept: tuple[set[tuple[int, int]], set[tuple[int, int]]] = (set(), set())
    for a in range(12):
        sim = [float(x[a] @ c / (x[a].norm() * c.norm())) for c in columns]
        same = [j for j in range(len(columns)) if column_labels[j] == UNBALANCED[a]]
        positives = [j for j in same if with_references or j != a]
        negatives = [j for j in range(len(columns)) if j not in same]
        if not positives or not negatives:
            continue
        hardest_n, hardest_p = max(sim[n] for n in negatives), min(sim[p] for p in positives)
        kept[0].update((a, p) for p in positives if sim[p] - 0.2 < hardest_n)
        kept[1].update((a, n) for n in negatives if sim[n] + 0.2 > hardest_p)
        assert any(i == a for i, _ in kept[0]) == any(i == a for i, _ in kept[1])
    mined = MultiSimilarityMiner(0.2)(x, UNBALANCED, refs, ref_labels)
    assert isinstance(mined, Pairs)
    assert as_sets(mined) == kept


def test_equals_pytorch_metric_learning() -> None:
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.arange(60) % 13
    theirs, ours = PeerMiner(0.1)(x, y), MultiSimilarityMiner(0.1)(x, y)
    assert as_sets(ours) == as_sets(Pairs(*theirs))


def test_bad_epsilon() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        MultiSimilarityMiner(-0.1)
