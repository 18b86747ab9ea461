import pytest
import torch
from torch import Tensor

from unseen.evaluation import pair_similarities
from unseen.evaluation.pair_similarities import pair_scores
from unseen.evaluation.relevance_filters import ClassFilter
from unseen.neighbors.space import make_space


def points(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-2, 3, (n, 3), generator=generator).float()
    return x, torch.randint(0, 5, (n,), generator=generator)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("block", [(7, 11), (1024, 4096)])
def test_equals_visiting_every_pair(
    normalize: bool, block: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_similarities, "ROWS", block[0])
    monkeypatch.setattr(pair_similarities, "COLUMNS", block[1])
    x, y = points(40)
    space = make_space(x, normalize=normalize)
    scores = pair_scores(space, ClassFilter(space, y))
    z = x.double()
    z = z / z.norm(dim=1, keepdim=True).clamp(min=1e-300) if normalize else z
    right: dict[float, int] = {}
    wrong: dict[float, int] = {}
    for i in range(40):
        for j in range(i):
            sim = (z[i] * z[j]).sum() if normalize else -(z[i] - z[j]).square().sum()
            table = right if y[i] == y[j] else wrong
            key = round(float(sim), 4)
            table[key] = table.get(key, 0) + 1
    result = [round(v, 4) + 0.0 for v in scores.similarities.tolist()]
    assert result == sorted({*right, *wrong}, reverse=True)
    assert scores.right.tolist() == [right.get(v, 0) for v in result]
    assert scores.wrong.tolist() == [wrong.get(v, 0) for v in result]


def test_gallery_and_groups() -> None:
    (x, y), (z, w) = points(20), points(30, 1)
    space = make_space(x, z)
    groups = torch.arange(20) % 4, torch.arange(30) % 4
    relevance = ClassFilter(space, y, w, groups=groups[0], gallery_groups=groups[1])
    scores = pair_scores(space, relevance)
    allowed = groups[0][:, None] != groups[1]
    assert int(scores.right.sum()) == int((allowed & (y[:, None] == w)).sum())
    assert int(scores.wrong.sum()) == int((allowed & (y[:, None] != w)).sum())
