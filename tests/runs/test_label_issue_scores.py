"""Label issues: found where they are, each evaluated by others alone, as a slow loop does it."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.runs import label_issue_scores
from unseen.runs.label_issue_scores import label_issues


def blobs(per_class: int = 20, wrong: int = 8, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings, labels of which some are wrong, and which."""
    draw = torch.Generator().manual_seed(seed)
    true = torch.arange(6).repeat_interleave(per_class)
    x = torch.randn(6, 8, generator=draw)[true] + 0.35 * torch.randn(len(true), 8, generator=draw)
    labels, changed = true.clone(), torch.randperm(len(true), generator=draw)[:wrong]
    labels[changed] = (true[changed] + 1 + torch.arange(wrong) % 5) % 6
    return x, labels, changed


@pytest.mark.parametrize("seed", range(3))
def test_wrong_labels_come_first_with_the_right_class(seed: int) -> None:
    x, labels, changed = blobs(seed=seed)
    result = label_issues(x, 10 * labels)
    first = result.order[: len(changed)]
    assert set(first.tolist()) == set(changed.tolist())
    assert (result.issue_score[first] > 0.5).all()
    assert (result.suggested[changed, 0] == 10 * (torch.arange(120) // 20)[changed]).all()
    assert (result.suggested != 10 * labels[:, None]).all()


def test_equals_a_slow_loop() -> None:
    x, labels, _ = blobs(per_class=9)
    result = label_issues(x, labels, seed=3)
    unit = torch.nn.functional.normalize(x).double().numpy()
    _, own, sizes = labels.unique(return_inverse=True, return_counts=True)
    folds = label_issue_scores._folds(own, sizes, 3).numpy()
    y = labels.numpy()
    for fold in range(5):
        learned = np.flatnonzero(folds != fold)
        request = np.flatnonzero(folds == fold)
        scatter = np.zeros((8, 8))
        for c in range(6):
            members = unit[[i for i in learned if y[i] == c]]
            for row in members - members.mean(axis=0):
                scatter += np.outer(row, row)
        scatter /= len(learned) - 6
        scatter = 0.5 * scatter + 0.5 * np.trace(scatter) / 8 * np.eye(8)
        values, vectors = np.linalg.eigh(scatter)
        z = unit @ (vectors / np.sqrt(values)) @ vectors.T
        z = z - z[learned].mean(axis=0)
        centers = [z[[i for i in learned if y[i] == c]].mean(axis=0) for c in range(6)]
        logits = {i: [z[i] @ m - m @ m / 2 for m in centers] for i in request}

        def probabilities(i: int, temperature: float, logits: dict = logits) -> list[float]:  # type: ignore[type-arg]
            top = max(logits[i])
            weights = [math.exp((value - top) / temperature) for value in logits[i]]
            return [weight / sum(weights) for weight in weights]

        def likelihood(temperature: float, request: object = request) -> float:
            return sum(math.log(probabilities(i, temperature)[y[i]]) for i in request)  # type: ignore[attr-defined]

        temperature = max(label_issue_scores.TEMPERATURES, key=likelihood)
        for i in request:
            p = probabilities(i, temperature)
            cosines = {
                j: z[i] @ z[j] / np.linalg.norm(z[i]) / np.linalg.norm(z[j]) for j in learned
            }
            near = sorted(learned, key=lambda j: -cosines[j])[:10]
            total = sum(max(0, cosines[j]) for j in near)
            v = [sum(max(0, cosines[j]) for j in near if y[j] == c) / total for c in range(6)]
            score = [math.log(p[c]) + math.log(v[c] + 0.05) for c in range(6)]
            gap = max(score[c] for c in range(6) if c != y[i]) - score[y[i]]
            assert float(result.issue_score[i]) == pytest.approx(1 / (1 + math.exp(-gap)), rel=1e-3)


def test_folds_deal_out_every_class() -> None:
    own = torch.randint(7, (200,), generator=torch.Generator().manual_seed(0))
    folds = label_issue_scores._folds(own, torch.bincount(own), 0)
    for c in range(7):
        counts = torch.bincount(folds[own == c], minlength=5)
        assert counts.max() - counts.min() <= 1


def test_an_item_alone_in_its_class_comes_last() -> None:
    x, labels, _ = blobs(per_class=6, wrong=0)
    labels[4] = 77
    result = label_issues(x, labels)
    assert result.order[-1] == 4
    assert result.issue_score[4].isnan()
    assert result.issue_score.isnan().sum() == 1


def test_two_classes_and_few_items() -> None:
    x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]])
    result = label_issues(x, torch.tensor([0, 0, 1, 1]))
    assert result.suggested.tolist() == [[1], [1], [0], [0]]
    with pytest.raises(ValueError, match="two classes or more of at least two items"):
        label_issues(x, torch.tensor([0, 0, 1, 2]))
