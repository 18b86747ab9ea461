import json
import math
from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from torch import Tensor

from unseen.core.relevance import Relevance
from unseen.evaluation.clustering import cluster
from unseen.evaluation.evaluate import METRICS, Score, evaluate
from unseen.evaluation.retrieve import retrieve
from unseen.metrics.map_at_r import MapAtR
from unseen.metrics.nmi import Nmi
from unseen.metrics.recall import Recall

ALL = (*METRICS, "precision_at_1", "map", "mrr", "map_at_1000", "revisit_map", "ami", "f1")
ALL += ("eer", "roc_auc", "fnmr_at_fmr@0.1")


def clouds(n: int = 200, classes: int = 20, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, classes, (n,), generator=generator)
    x = torch.randn(classes, 8, generator=generator)[y]
    return x + noise * torch.randn(n, 8, generator=generator), y


def test_means_over_queries_and_over_classes() -> None:
    x, y = clouds()
    y[0] = 77  # alone
    result = evaluate(x, y, metrics=("recall@1", "map_at_r"))
    neighbors = retrieve(x, y, int((torch.bincount(y) - 1).max()))
    for name, metric in (("recall@1", Recall(1)), ("map_at_r", MapAtR())):
        values = metric(neighbors)
        torch.testing.assert_close(result.per_query[name], values, equal_nan=True)
        assert result.values[name].value == pytest.approx(float(values.nanmean()))
        means = [values[y == c].mean() for c in y.unique() if c != 77]
        assert result.values[name].class_average == pytest.approx(float(torch.stack(means).mean()))
        assert result.values[name].low < result.values[name].value < result.values[name].high
    assert result.counts == {
        "broken": 0,
        "classes": 21,
        "gallery": 200,
        "lone_queries": 1,
        "queries": 199,
        "ties": 0,
    }


def test_perfect_embeddings() -> None:
    y = torch.arange(12).repeat_interleave(4)
    result = evaluate(torch.eye(12)[y], y, metrics=ALL, starts=8)
    full = 3 / 4  # what the metrics that count the query as one of its class can reach
    for name, score in result.values.items():
        expected = {"eer": 0.0, "fnmr_at_fmr@0.1": 0.0, "map_at_1000": full, "revisit_map": full}
        if name not in ("nmi", "ami", "f1"):  # k-means may miss a cluster from some starts
            assert score.value == pytest.approx(expected.get(name, 1.0)), name


def test_collapsed_embeddings_score_nothing() -> None:
    y = torch.arange(200) % 20
    x = torch.randn(1, 16, generator=torch.Generator().manual_seed(0)).expand(200, 16)
    result = evaluate(x, y, metrics=ALL)
    for name in (*METRICS, "precision_at_1", "ami"):
        assert result.values[name].value == pytest.approx(0.0, abs=1e-12), name
    assert result.values["mrr"].value == pytest.approx(1 / 191)
    assert result.values["roc_auc"].value == result.values["eer"].value == 0.5
    assert result.values["fnmr_at_fmr@0.1"].value == 1.0
    assert result.counts["ties"] == 200


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_are_not_finite_are_named(bad: float) -> None:
    x, y = clouds()
    x[[3, 7, 8, 20], 2] = bad
    message = r"^embeddings: 4 of 200 rows hold NaN or infinity \(rows 3, 7, 8 and 1 more\); leave"
    with pytest.raises(ValueError, match=message):
        evaluate(x, y)
    with pytest.raises(ValueError, match=r"^gallery_embeddings: 4 of 200 rows"):
        evaluate(clouds()[0], y, gallery_embeddings=x, gallery_labels=y)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_embeddings_of_a_run_score_the_worst_and_say_so(bad: float) -> None:
    x, y = clouds()
    x[3, 2] = bad
    result = evaluate(x, y, metrics=ALL, non_finite="worst")
    assert result.counts["broken"] == 1
    for name, score in result.values.items():
        expected = 1.0 if name in ("eer", "fnmr_at_fmr@0.1") else 0.0
        assert score.value == expected, name
    gallery = evaluate(
        clouds()[0],
        y,
        gallery_embeddings=x,
        gallery_labels=y,
        metrics=("recall@1",),
        non_finite="worst",
    )
    assert gallery.values["recall@1"].value == 0.0


def test_parts_that_fit_into_memory_change_nothing() -> None:
    x, y = clouds(300, 30)
    x[50:100] = x[:50]
    groups = torch.arange(300) % 5 - 1
    whole = evaluate(x, y, metrics=ALL, ignore_groups=groups)
    parts = evaluate(x, y, metrics=ALL, ignore_groups=groups, memory=2**17)
    assert parts.to_dict() == whole.to_dict()
    for name, values in whole.per_query.items():
        assert torch.equal(values.isnan(), parts.per_query[name].isnan())
        assert torch.equal(values.nan_to_num(), parts.per_query[name].nan_to_num()), name


def test_same_input_same_text() -> None:
    x, y = clouds()
    texts = {json.dumps(evaluate(x, y, metrics=ALL).to_dict(), allow_nan=False) for _ in range(2)}
    assert len(texts) == 1
    assert evaluate(x, y, seed=1).to_dict() != evaluate(x, y).to_dict()


def test_several_kinds_of_label_in_one_pass() -> None:
    x, y = clouds()
    columns = {"class": y, "category": y // 4}
    both = evaluate(x, columns, metrics=("recall@1", "map_at_r", "nmi"))
    for column, labels in columns.items():
        alone = evaluate(x, labels, metrics=("recall@1", "map_at_r", "nmi"))
        for name, score in alone.values.items():
            assert both.values[f"{column}/{name}"] == score
        assert both.counts[f"{column}/classes"] == alone.counts["classes"]
    with pytest.raises(ValueError, match="columns of labels"):
        evaluate(x, columns, gallery_embeddings=x, gallery_labels={"class": y})
    with pytest.raises(ValueError, match="both be"):
        evaluate(x, y, gallery_embeddings=x, gallery_labels=columns)


def test_query_and_gallery() -> None:
    x, y = clouds()
    result = evaluate(x[:50], y[:50], gallery_embeddings=x[50:], gallery_labels=y[50:], metrics=ALL)
    values = Recall(1)(
        retrieve(x[:50], y[:50], 1, gallery_embeddings=x[50:], gallery_labels=y[50:])
    )
    assert result.values["recall@1"].value == pytest.approx(float(values.nanmean()))
    assert result.counts["gallery"] == 150
    assert len(result.per_query["nmi"]) == 200  # clusters are made of everything evaluated


def test_queries_inside_the_gallery_equal_self_retrieval() -> None:
    x, y = clouds()
    within = evaluate(
        x, y, gallery_embeddings=x, gallery_labels=y, positions=torch.arange(200), metrics=ALL
    )
    alone = evaluate(x, y, metrics=ALL)
    for name in set(ALL) - {"eer", "roc_auc", "fnmr_at_fmr@0.1"}:
        assert within.values[name] == alone.values[name], name
    for name in ("eer", "roc_auc"):  # pairs are met from both sides: the same shares
        assert within.values[name].value == pytest.approx(alone.values[name].value)


def test_intervals_over_classes_are_longer_when_classes_differ() -> None:
    """Half of the classes are found, half are not: classes are the sample, not images."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(20).repeat_interleave(30)
    noise = torch.where(y % 2 == 0, 0.1, 3.0)[:, None]
    x = torch.randn(20, 8, generator=generator)[y]
    x = x + noise * torch.randn(600, 8, generator=generator)
    width = {}
    for intervals in ("queries", "classes"):
        score = evaluate(x, y, metrics=("recall@1",), intervals=intervals).values["recall@1"]  # type: ignore[arg-type]
        width[intervals] = score.high - score.low
    assert width["classes"] > 2 * width["queries"]


def test_clusterings_are_averaged_over_starts() -> None:
    x, y = clouds(noise=2.0)
    scores = [Nmi()(run.assignments, y) for run in cluster(x, 20, starts=4, seed=3)]
    result = evaluate(x, y, metrics=("nmi",), starts=4, seed=3).values["nmi"]
    assert result.value == pytest.approx(sum(scores) / 4)
    assert result.std == pytest.approx(float(torch.tensor(scores).std()), rel=1e-4)
    assert result.low < result.value < result.high


def test_without_intervals() -> None:
    x, y = clouds()
    result = evaluate(x, y, metrics=("recall@1",), resamples=0)
    assert math.isnan(result.values["recall@1"].low)
    assert result.to_dict()["metrics"]["recall@1"]["low"] is None


def test_nobody_has_a_positive() -> None:
    result = evaluate(torch.randn(5, 3), torch.arange(5), metrics=("recall@1", "map", "eer"))
    assert math.isnan(result.values["recall@1"].value)
    assert result.to_dict()["metrics"]["recall@1"]["value"] is None
    assert result.counts["queries"] == 0


def test_clusters_that_say_nothing_have_no_score_but_a_reason() -> None:
    """As many clusters as items, or one, agree with the labels whatever the embeddings are."""
    for labels, reason in (
        (torch.arange(12), "no item has another of its class"),
        (torch.zeros(12, dtype=torch.int64), "all items are of one class"),
    ):
        result = evaluate(torch.randn(12, 3), labels, metrics=("recall@1", "nmi", "ami", "ari"))
        assert all(math.isnan(result.values[name].value) for name in ("nmi", "ami", "ari"))
        assert str(result).splitlines()[-1] == f"nan: undefined, {reason}"
        assert result.to_dict()["metrics"]["nmi"]["value"] is None


def test_one_progress_bar() -> None:
    x, y = clouds()
    message: list[tuple[int, int]] = []
    evaluate(x, y, metrics=ALL, progress=lambda done, total: message.append((done, total)))
    assert message == sorted(message)
    assert message[-1] == (1000, 1000)


def test_bad_intervals() -> None:
    x, y = clouds()
    with pytest.raises(ValueError, match="'queries' or 'classes'"):
        evaluate(x, y, intervals="images")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="given together"):
        evaluate(x, y, gallery_embeddings=x)
    with pytest.raises(ValueError, match="matrix"):
        evaluate(x[0], y)
    with pytest.raises(ValueError, match="at least one item"):
        evaluate(x[:0], y[:0])


def test_query_classes_that_the_gallery_does_not_have_are_an_error_or_counted() -> None:
    x, y = clouds()
    y = y.clone()
    y[:3] = 999
    options = {"gallery_embeddings": x[50:], "gallery_labels": y[50:], "metrics": ("recall@1",)}
    with pytest.raises(ValueError, match="3 queries ask for 1 classes that the gallery does not"):
        evaluate(x[:50], y[:50], **options)
    counted = evaluate(x[:50], y[:50], **options, missing="count")
    assert counted.counts["lone_queries"] == 3
    without = evaluate(x[3:50], y[3:50], **options)
    assert counted.values["recall@1"].value == without.values["recall@1"].value
    with pytest.raises(ValueError, match="missing must be 'error' or 'count', got 'ignore'"):
        evaluate(x, y, missing="ignore")


def test_the_fraction_of_pairs_compared_twice_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first pass in integers, where there is one; the scores are the same without."""
    x = torch.randn(400, 32, generator=torch.Generator().manual_seed(0))
    y = torch.arange(400) % 40
    plain = evaluate(x, y, metrics=("recall@1", "map_at_r"), resamples=0)
    assert plain.compared_twice == 0
    monkeypatch.setattr("unseen.neighbors.select.SMALL", 0)
    monkeypatch.setattr("unseen.neighbors.certified._faster", lambda size, dtype: True)
    result = evaluate(x, y, metrics=("recall@1", "map_at_r"), resamples=0)
    assert 0 < result.compared_twice < 0.5
    assert result.to_dict() == plain.to_dict()


class InThreads:
    """Processes that are threads: what they gather lies in one list."""

    def __init__(self, rank: int, count: int, board: list[Tensor], barrier: Barrier) -> None:
        self.rank, self.count, self.board, self.barrier = rank, count, board, barrier

    def fraction(self, total: int) -> slice:
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def lengths(self, rows: int, device: torch.device) -> list[int]:
        return self.gather(torch.tensor([rows]), [1] * self.count).tolist()

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> Tensor:
        self.board[self.rank] = rows
        self.barrier.wait()
        gathered = torch.cat(self.board)
        self.barrier.wait()
        return gathered


@pytest.mark.parametrize("kind", [None, "levels", "label_sets", "pairs", "graded"])
def test_several_processes_give_the_numbers_of_one(
    kind: str | None, kinds: Callable[[Tensor], dict[str, Relevance]]
) -> None:
    x = torch.randn(91, 6, generator=torch.Generator().manual_seed(0)).round()  # with ties
    y: Any = torch.arange(91) % 13
    y = y if kind is None else kinds(y)[kind].of(torch.arange(91))
    metrics = ("recall@1", "map_at_r", "map", "nmi", "ndcg@5")
    alone = evaluate(x, y, metrics=metrics, resamples=50)
    board, barrier, result = [torch.zeros(0)] * 3, Barrier(3), {}

    def work(rank: int) -> None:
        processes = InThreads(rank, 3, board, barrier)
        result[rank] = evaluate(x, y, metrics=metrics, resamples=50, processes=processes)

    threads = [Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(3):
        assert result[rank].to_dict() == alone.to_dict()
        for name, values in alone.per_query.items():
            assert torch.equal(result[rank].per_query[name].nan_to_num(-1), values.nan_to_num(-1))


def test_scores_without_an_interval_are_equal() -> None:
    """Of two evaluations alike, also where NaN is not the same object."""
    assert Score(0.5, std=float("nan")) == Score(0.5)
    assert Score(0.5, low=0.4) != Score(0.5)
    assert hash(Score(0.5, std=float("nan"))) == hash(Score(0.5))
