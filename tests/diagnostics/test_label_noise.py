import math

import pytest
import torch
from torch import Tensor

from unseen.diagnostics.label_noise import LabelNoise

Data = tuple[Tensor, Tensor]


def unit(x: Tensor) -> Tensor:
    x = x.double()
    return x / x.norm(dim=1, keepdim=True)


def blobs() -> Data:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) // 20
    x = torch.randn(30, 16, generator=generator)[y]
    return x + 0.3 * torch.randn(600, 16, generator=generator), y


def test_finds_planted_noise_and_the_right_label() -> None:
    x, y = blobs()
    planted = torch.randperm(600, generator=torch.Generator().manual_seed(1))[:20]
    noisy = y.clone()
    noisy[planted] = (y[planted] + 7) % 30
    result = LabelNoise()(x, noisy)
    assert set(result["label_issues"].tolist()) == set(planted.tolist())
    assert torch.equal(result["suggested"], y[result["label_issues"]])
    assert result["fraction"] == pytest.approx(20 / 600)


def test_issue_score_by_hand(cloud: Data) -> None:
    x, y = unit(cloud[0]), cloud[1]
    result = LabelNoise(5)(*cloud)["issue_score"]
    for i in range(len(x)):
        order = sorted((float(-(x[i] @ x[j])), j) for j in range(len(x)) if j != i)[:5]
        votes = [int(y[j]) for _, j in order]
        others = int((y == y[i]).sum()) - 1
        wrong = [v for v in votes if v != int(y[i])]
        top = max((wrong.count(v) for v in wrong), default=0)
        if others == 0:
            assert math.isnan(float(result[i]))
        else:
            own = votes.count(int(y[i])) / min(5, others)
            assert float(result[i]) == pytest.approx(top / 5 - own)


def test_clean_labels_raise_no_issue_score() -> None:
    result = LabelNoise()(*blobs())
    assert result["fraction"] == 0
    assert len(result["suggested"]) == 0


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        LabelNoise(0)
    with pytest.raises(ValueError, match="threshold"):
        LabelNoise(threshold=2)
    with pytest.raises(ValueError, match="below the number of items"):
        LabelNoise(5)(torch.eye(5), torch.arange(5))
