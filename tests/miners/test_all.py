import pytest
import torch

from unseen.miners.all import AllMiner

LABELS = torch.tensor([2, 0, 0, 1, 0, 2])


@pytest.mark.parametrize("ref_labels", [None, torch.tensor([0, 2, 2, 7])])
def test_every_pair_once(ref_labels: torch.Tensor | None) -> None:
    columns = LABELS if ref_labels is None else ref_labels
    references = None if ref_labels is None else torch.zeros(4, 2)
    a, p, b, n = (t.tolist() for t in AllMiner()(torch.zeros(6, 2), LABELS, references, ref_labels))
    positives, negatives = [], []
    for i in range(6):
        for j in range(len(columns)):
            if LABELS[i] != columns[j]:
                negatives.append((i, j))
            elif ref_labels is not None or i != j:
                positives.append((i, j))
    assert list(zip(a, p, strict=True)) == positives
    assert list(zip(b, n, strict=True)) == negatives
