"""Another order of the first images: the formulas against loops, and the same hits in it."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from unseen.runs.trained_run import Trained
from unseen.search import rerank
from unseen.search.image_sources import find
from unseen.search.index import Index
from unseen.search.ingest import ingest, model_entry
from unseen.search.rerank import local_scores, reranker
from unseen.search.writer import Writer


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, model: Trained, images: Path) -> Index:
    folder = tmp_path_factory.mktemp("reranked") / "i"
    with Writer.create(folder, model_entry(model)) as writer:
        ingest(writer, model, find([images]))
    return Index.open(folder)


def slow_score(query: np.ndarray, other: np.ndarray) -> float:
    total = 0.0
    for p, place in enumerate(query):
        cosines = [float(place @ each) for each in other]
        q = int(np.argmax(cosines))
        if int(np.argmax([float(each @ other[q]) for each in query])) == p:
            total += max(cosines[q], 0)
    return total / len(query)


@pytest.mark.parametrize("seed", range(3))
def test_local_scores_are_those_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(7, 12, 5))
    places[1] = places[0, ::-1] + 0.1 * rng.normal(size=(12, 5))  # the same, elsewhere
    places /= np.linalg.norm(places, axis=2, keepdims=True)
    given = torch.from_numpy(places)
    result = local_scores(given[0], given)
    assert result.tolist() == pytest.approx([slow_score(places[0], other) for other in places])
    assert result[0] == pytest.approx(1.0)
    assert result[1] > result[2:].max()


@pytest.mark.parametrize("kind", ["expansion", "k-reciprocal", "local"])
def test_the_same_images_in_another_order(
    index: Index, model: Trained, images: Path, kind: rerank.Kind
) -> None:
    """With the similarities of the query as it was, under a filter too."""
    query = images / "class 2" / "1.png"
    search = reranker(index, model, model.prepared(query), kind)
    vector = model.embed([query])
    for where in (None, "label <> 'class 4'"):
        plain, other = index.search(vector, 30, where=where), search(vector, 30, where=where)
        assert sorted(other.ids[0]) == sorted(plain.ids[0][plain.ids[0] >= 0])
        known = dict(zip(plain.ids[0].tolist(), plain.similarities[0].tolist(), strict=True))
        expected = [known[id] for id in other.ids[0].tolist()]
        np.testing.assert_allclose(other.similarities[0], expected, atol=1e-5)
    assert search(vector, 3).ids[0].tolist() == search(vector, 30).ids[0, :3].tolist()
    own = index.search(vector, 1).ids[0, 0]
    assert search(vector, 1).ids[0, 0] == own  # the image itself


def test_an_image_that_is_gone_counts_as_the_mean(
    index: Index, model: Trained, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = model.prepared(images / "class 1" / "0.png")
    ids = index.ids[:20]
    whole = rerank.matching(index, model, image)(ids)
    again = rerank.prepared_again
    monkeypatch.setattr(
        rerank, "prepared_again", lambda *given: None if given[2] == ids[17] else again(*given)
    )
    part = rerank.matching(index, model, image)(ids)
    others = [place for place in range(20) if place != 17]
    assert torch.equal(part[others], whole[others])
    assert math.isclose(part[17], whole[others].mean(), rel_tol=1e-5)


def test_what_cannot_be_reranked_is_one_line(index: Index, model: Trained) -> None:
    with pytest.raises(ValueError, match="rerank must be k-reciprocal, expansion, local"):
        reranker(index, model, None, "whiten")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="for one image that asks"):
        reranker(index, model, None, "local")
