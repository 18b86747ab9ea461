"""Post-processing against slow loops over images and sets."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.search.refine import (
    augmented,
    expanded,
    neighbors,
    reranked,
    reranked_scores,
    whitening,
)


def unit(count: int, size: int = 6, seed: int = 0) -> Tensor:
    x = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    x[: count // 2] += 2 * x[0]
    return torch.nn.functional.normalize(x)


def test_whitening_gives_equal_variances() -> None:
    x = unit(400) * torch.tensor([5.0, 1, 1, 0.2, 1, 1])
    made = whitening(x, shrinkage=0.0)
    raw = (x.double() - made.mean) @ made.matrix
    torch.testing.assert_close(raw.T.cov(), torch.eye(6, dtype=torch.float64), atol=1e-4, rtol=0)
    assert made(x).norm(dim=1).tolist() == pytest.approx([1] * 400, abs=1e-5)
    few = whitening(x, size=2, shrinkage=0.0)
    _, _, directions = np.linalg.svd((x - x.mean(dim=0)).double().numpy(), full_matrices=False)
    for column, direction in zip(few.matrix.T.numpy(), directions, strict=False):
        cosine = abs(column @ direction) / np.linalg.norm(column)
        assert cosine == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="shrinkage"):
        whitening(x, shrinkage=2)
    with pytest.raises(ValueError, match="size"):
        whitening(x, size=9)


def test_expansion_and_augmentation_by_a_loop() -> None:
    x = unit(25)
    sim, result = neighbors(x, 4)
    made, every = expanded(x, x[result], sim, power=2.0), augmented(x, 4, power=2.0)
    for i in range(25):
        others = sorted((j for j in range(25) if j != i), key=lambda j: -float(x[i] @ x[j]))[:4]
        total = x[i].clone()
        for j in others:
            total += max(float(x[i] @ x[j]), 0) ** 2 * x[j]
        torch.testing.assert_close(made[i], total / total.norm())
        torch.testing.assert_close(every[i], total / total.norm())
    with pytest.raises(ValueError, match="top"):
        augmented(x, 25)


def reranked_slowly(x: Tensor, k1: int, k2: int, original: float) -> list[list[int]]:
    """Sets and loops, after the paper."""
    n = len(x)
    sim = (x.double() @ x.double().T).tolist()
    ranked = [
        [i, *sorted((j for j in range(n) if j != i), key=lambda j: -sim[i][j])] for i in range(n)
    ]

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in ranked[i][: k + 1] if i in ranked[j][: k + 1]}

    weights = []
    for i in range(n):
        expanded_set = set(reciprocal(i, k1))
        for j in reciprocal(i, k1):
            half = reciprocal(j, round(k1 / 2))
            if len(half & reciprocal(i, k1)) >= 2 / 3 * len(half):
                expanded_set |= half
        row = [math.exp(-(1 - sim[i][j])) if j in expanded_set else 0.0 for j in range(n)]
        weights.append([value / sum(row) for value in row])
    averaged = [
        [sum(weights[j][g] for j in ranked[i][:k2]) / k2 for g in range(n)] for i in range(n)
    ]
    lists = []
    for i in range(n):

        def distance(j: int, i: int = i) -> float:
            low = sum(min(a, b) for a, b in zip(averaged[i], averaged[j], strict=True))
            high = sum(max(a, b) for a, b in zip(averaged[i], averaged[j], strict=True))
            return (1 - original) * (1 - low / high) + original * (1 - sim[i][j])

        lists.append(sorted((j for j in range(n) if j != i), key=distance))
    return lists


@pytest.mark.parametrize(("k1", "k2"), [(6, 3), (9, 1), (4, 4)])
@pytest.mark.parametrize("seed", [0, 1])
def test_reranking_by_loops_over_sets(k1: int, k2: int, seed: int) -> None:
    x = unit(40, seed=seed)
    _, result = neighbors(x, 39)
    made = reranked(x, result, k1, k2, 0.3)
    slow = reranked_slowly(x, k1, k2, 0.3)
    same = [row.tolist()[:15] == other[:15] for row, other in zip(made, slow, strict=True)]
    assert np.mean(same) > 0.9  # lists may differ where distances are equal
    assert [sorted(row) for row in made.tolist()] == [sorted(row) for row in slow]


def test_reranking_helps_on_clouds_that_touch() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(20, 8, generator=generator)
    labels = torch.arange(20).repeat_interleave(12)
    x = torch.nn.functional.normalize(
        centers[labels] + 0.9 * torch.randn(240, 8, generator=generator)
    )
    plain = (x @ x.T).fill_diagonal_(-2).topk(11).indices
    before = float((labels[plain] == labels[:, None]).float().mean())
    after = reranked_scores(x, labels, ["r_precision", "recall@1"], 12, 4)
    assert after["r_precision"] > before + 0.02


def test_bad_values_are_refused() -> None:
    x = unit(10)
    with pytest.raises(ValueError, match="k2"):
        reranked(x, neighbors(x, 5)[1], k1=3, k2=4)
    with pytest.raises(ValueError, match="original"):
        reranked(x, neighbors(x, 5)[1], k1=3, k2=2, original=2)
