from pathlib import Path

import pytest
import torch

from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.metric_names import parse_metric
from unseen.metrics.fnmr_at_fmr import FnmrAtFmr
from unseen.metrics.map_at_1000 import MapAt1000
from unseen.metrics.recall import Recall


def test_values_after_the_at_sign() -> None:
    recall = parse_metric("recall@4")
    assert isinstance(recall, Recall)
    assert recall.k == 4
    rate = parse_metric("fnmr_at_fmr@0.01")
    assert isinstance(rate, FnmrAtFmr)
    assert rate.fmr == 0.01
    assert isinstance(parse_metric("map_at_1000"), MapAt1000)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("recal@4", "unknown metric 'recal': did you mean recall"),
        ("map_at_q", "map_at_r"),
        ("zzz", "recall"),
        ("base", "unknown metric"),
        ("nmi@3", "metric nmi takes no value"),
        ("recall@many", "there must be a number"),
        ("recall@", "there must be a number"),
        ("recall@0", "k must be"),
        ("recall@inf", "k must be"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_metric(name)


def test_metrics_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from unseen.metrics.base import Retrieval\n"
        "class First(Retrieval):\n"
        "    def depth(self, max_relevant): return 1\n"
        "    def on_queries(self, neighbors): return neighbors.matches[:, 0].double()\n"
        "def first(neighbors): return neighbors.matches[:, 0].float()\n"
        "class Wrong: pass\n"
    )
    monkeypatch.chdir(tmp_path)
    embeddings = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 5
    names = ["recall@1", "./mine.py:First", "./mine.py:first"]
    result = evaluate(embeddings, labels, metrics=[*names, Recall(2)])
    values = [score.value for score in result.values.values()]
    assert values[0] == values[1] == values[2] <= values[3]
    assert list(result.values) == ["recall@1", "First", "first", "Recall"]
    with pytest.raises(ValueError, match="must be a subclass of Retrieval"):
        evaluate(embeddings, labels, metrics=["./mine.py:Wrong"])
