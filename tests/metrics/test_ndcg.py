import pytest
import torch
from sklearn.metrics import ndcg_score

from unseen.core.relevance import Related
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.ndcg import Ndcg


@pytest.mark.parametrize("k", [1, 3, 40])
def test_equals_scikit_learn(graded: tuple[torch.Tensor, Related], k: int) -> None:
    x, items = graded
    result = Ndcg(k)(retrieve(x, items, 0, grades=True))
    unit = torch.nn.functional.normalize(x.double())
    for q in range(len(x)):
        others = [j for j in range(len(x)) if j != q]
        grades = items.to().grade[q, others][None].double().numpy()
        if result[q].isnan():
            continue
        wanted = ndcg_score(grades, (unit[q] @ unit[others].T)[None].numpy(), k=k)
        assert float(result[q]) == pytest.approx(wanted, abs=1e-6)
    assert result.isfinite().sum() > 15


def test_an_empty_gallery() -> None:
    nobody = {"gallery_embeddings": torch.zeros(0, 2), "gallery_labels": torch.arange(0)}
    result = retrieve(torch.randn(3, 2), torch.arange(3), 0, grades=True, **nobody)
    assert Ndcg()(result).isnan().all()


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="k must be"):
        Ndcg(0)
