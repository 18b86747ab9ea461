"""Queries, gallery, groups, further labels and official validation classes through a whole run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unseen.config import schema as configs
from unseen.reports import queries, run_page, score_tables, stored_run
from unseen.runs.prepare import RunContext, prepare
from unseen.runs.run import train_and_evaluate
from unseen.training.result import read_result
from unseen.training.run_folder import RunFolder

CLASSES, EACH = 16, 6
LABELS = np.repeat(np.arange(CLASSES), EACH)
TEST = LABELS >= 8


def held(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(CLASSES, 8))[LABELS] + 0.8 * rng.normal(size=(len(LABELS), 8))
    return {"features": features, "labels": LABELS} | more


def setting_of(folder: Path, *words: str, **more: Any) -> RunContext:
    np.savez(folder / "x.npz", **held(**more))
    given = ["data=arrays", f"data.root={folder / 'x.npz'}", "epochs=1", "batch_size=8", *words]
    return prepare(configs.make(configs.override({}, given)))


def marked() -> dict[str, Any]:
    """The first two items of a class ask, the others answer; the first two share a camera with the
    third."""
    place = np.arange(len(LABELS)) % EACH
    return {
        "split": np.where(TEST, "test", np.where(LABELS < 3, "validation", "train")),
        "is_query": TEST & (place < 2),
        "is_gallery": TEST & (place >= 2),
        "groups": np.where(place < 3, LABELS, -1),
        "label_family": LABELS % 2,
    }


def slow_recall(embeddings: torch.Tensor, test: dict[str, Any], labels: np.ndarray) -> float:
    unit = torch.nn.functional.normalize(embeddings.double()).numpy()
    hits = []
    for q in test["query"]:
        allowed = [g for g in test["gallery"] if not test["groups"][g] == test["groups"][q] >= 0]
        best = max(allowed, key=lambda g: unit[q] @ unit[g])
        hits.append(labels[best] == labels[q])
    return float(np.mean(hits))


def test_a_run_is_evaluated_as_its_annotations_say(tmp_path: Path) -> None:
    context = setting_of(tmp_path, 'relevance.by=["family"]', **marked())
    assert set(LABELS[context.split.validation]) == {0, 1, 2}
    out = tmp_path / "run"
    result = train_and_evaluate(context, out, "test")
    assert result.split.query_items == 16
    assert result.split.gallery_items == 32
    with np.load(out / "embeddings" / "test.npz") as kept:
        test = dict(kept)
    embeddings = torch.from_numpy(test["embeddings"])
    for row, labels in (("trained", test["labels"]), ("trained by family", test["labels"] % 2)):
        scores = result.scores[row]
        wanted = slow_recall(embeddings, test, labels)
        assert scores.metrics["recall@1"].value == pytest.approx(wanted, abs=1e-6)
        assert scores.counts["queries"] == 16
        assert scores.counts["gallery"] == 32
    with np.load(out / "embeddings" / "per_query.npz") as kept:
        assert kept["trained by family/recall@1"].shape == (16,)

    matches = queries.find(stored_run._embeddings(out, "embeddings/test.npz"), True)  # type: ignore[arg-type]
    assert np.flatnonzero(matches.askable).tolist() == test["query"].tolist()
    answered = matches.positions[test["query"]]
    assert set(answered[answered >= 0]) <= set(test["gallery"])
    recall = result.scores["trained"].metrics["recall@1"].value
    assert matches.matches[test["query"], 0].mean() == pytest.approx(recall, abs=1e-6)
    html = run_page.write(out, context.dataset).read_text()
    assert "32 of the gallery" in html
    assert "trained network by family" in html
    assert "an answer is right where it has the query&#39;s family, be it another class" in html
    assert "trained network by family" in score_tables.markdown_table(result)
    assert read_result(RunFolder(out)) == result


def test_groups_count_in_selection_too(tmp_path: Path) -> None:
    """All items of a class in one group: nobody can be found, so nothing can be selected."""
    context = setting_of(tmp_path, groups=np.where(TEST, -1, LABELS))
    with pytest.raises(ValueError, match="Do the ignore groups hold whole classes"):
        train_and_evaluate(context, tmp_path / "run", "test")


def test_an_unknown_label_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"label column of x 'famly': did you mean family\?"):
        setting_of(tmp_path, 'relevance.by=["famly"]', **marked())


def test_queries_without_an_answer_are_refused(tmp_path: Path) -> None:
    given = marked()
    given["is_gallery"] = given["is_gallery"] & (LABELS != 9)
    with pytest.raises(ValueError, match="1 classes of x have queries but nothing in the gallery"):
        setting_of(tmp_path, **given)
    with pytest.raises(ValueError, match="no test item of x is marked as query"):
        setting_of(tmp_path, is_query=~TEST)
