"""Decisions at the threshold: a label, unlabelled, several, or unknown; and the page that shows
them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unseen.evaluation.calibration import Calibration, calibrate, rates_at
from unseen.neighbors.space import make_space
from unseen.runs.calibrate_run import calibrate_run, read_calibration
from unseen.runs.prepare import Callbacks, reopen
from unseen.runs.trained_run import Trained
from unseen.search.answers import Answer, Hit, ask, reason
from unseen.search.contact_page import write_answer
from unseen.search.index import Index
from unseen.search.ingest import find, ingest, model_entry
from unseen.search.writer import Writer


@pytest.fixture(scope="module")
def run(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: what is calibrated here would answer in other tests."""
    return Path(shutil.copytree(run, tmp_path_factory.mktemp("calibrated") / "run"))


@pytest.fixture(scope="module")
def model(run: Path) -> Trained:
    return Trained.open(run)


@pytest.fixture(scope="module")
def calibration(run: Path, model: Trained) -> Calibration:
    assert read_calibration(model) is None
    context, _ = reopen(run)
    return calibrate_run(context, model, Callbacks(), fmr=0.05)


@pytest.fixture
def index(tmp_path: Path, model: Trained, images: Path) -> Index:
    with Writer.create(tmp_path / "i", model_entry(model)) as writer:
        ingest(writer, model, find([images]))
        ingest(writer, model, find([images / "class 0" / "0.png"]), replace_changed=True)
    return Index.open(tmp_path / "i")


def test_calibration_is_kept_with_the_run(
    run: Path, model: Trained, calibration: Calibration
) -> None:
    assert read_calibration(model) == calibration
    message = (run / "calibration.json").read_text()
    model.folder.write_text("calibration.json", message.replace(model.fingerprint, "0" * 32))
    assert read_calibration(model) is None  # made for other weights
    model.folder.write_text("calibration.json", message)


def test_the_bound_holds_on_test_classes(run: Path, model: Trained) -> None:
    """Characters that took no part in training or calibration: one promise for each rate."""
    context, _ = reopen(run)
    embeddings = context.embed(model.network, model.transform, context.split.test)
    labels = torch.from_numpy(context.dataset.labels[context.split.test])
    held = context.embed(model.network, model.transform, context.split.validation)
    names = torch.from_numpy(context.dataset.labels[context.split.validation])
    for fmr in (0.01, 0.05, 0.2):
        made = calibrate(held, names, fmr=fmr)
        assert rates_at(make_space(embeddings), labels, made.threshold).fmr <= made.bound


def test_the_threshold_decides(
    index: Index, model: Trained, images: Path, calibration: Calibration
) -> None:
    query = model.embed([images / "class 2" / "1.png"])
    answer = ask(index, query, 5, replace(calibration, threshold=0.999))[0]
    assert answer.decision == "class 2"
    assert [hit.matched for hit in answer.hits] == [hit.similarity >= 0.999 for hit in answer.hits]
    said = [hit.probability for hit in answer.hits]
    assert said == sorted(said, reverse=True)
    assert ask(index, query, 5, replace(calibration, threshold=1.1))[0].decision == "unknown"
    assert ask(index, query, 5)[0].decision is None
    assert ask(index, query, 5)[0].hits[0].probability is None
    others = [id for id in index.ids.tolist() if index.image(id).label != "class 2"]
    filtered = ask(index, query, 5, calibration, filter=others)[0]
    assert all(hit.label != "class 2" for hit in filtered.hits)
    assert Answer([]).decision == "unknown"


def test_labels_that_match_together_are_no_answer(
    index: Index, model: Trained, images: Path, calibration: Calibration
) -> None:
    """Nor where one image is asked for: the ten nearest decide."""
    query = model.embed([images / "class 2" / "1.png"])
    ten = ask(index, query, 10)[0].hits
    for threshold in (ten[0].similarity, ten[4].similarity, ten[9].similarity):
        labels = list(dict.fromkeys(hit.label for hit in ten if hit.similarity >= threshold))
        for k in (1, 10):
            answer = ask(index, query, k, replace(calibration, threshold=threshold))[0]
            assert len(answer.hits) == k
            assert list(answer.labels) == labels
            assert answer.decision == (labels[0] if len(labels) == 1 else "several labels")
    assert answer.decision == "several labels"
    unlabelled = [Hit(1, "/p", None, 0.9, 0.9, True), Hit(2, "/q", "a", 0.8, 0.9, True)]
    assert Answer.of(unlabelled, 2).decision == "unlabelled"


@pytest.mark.parametrize(
    ("matched", "probability", "conclusion"),
    [
        (True, 0.9, "match"),
        (False, 0.8, "maybe"),
        (True, 0.3, "maybe"),
        (False, 0.1, "no match"),
        (None, None, None),
    ],
)
def test_one_conclusion_for_threshold_and_probability(
    matched: bool | None,
    probability: float | None,
    conclusion: str | None,
    calibration: Calibration,
) -> None:
    hit = Hit(1, "/p.jpg", "a", 0.7, probability, matched)
    assert hit.conclusion == conclusion
    if conclusion is not None:
        said = reason(hit, replace(calibration, threshold=0.75, bound=0.002))
        assert f"about {100 * probability:.0f} %" in said
        assert "threshold 0.750" in said
        assert ("reaches" in said) == matched


@pytest.mark.parametrize("threshold", [-1.0, 1.1, None])
def test_the_page_shows_the_answer(
    tmp_path: Path,
    index: Index,
    model: Trained,
    images: Path,
    calibration: Calibration,
    threshold: float | None,
) -> None:
    query = images / "class 2" / "1.png"
    used = None if threshold is None else replace(calibration, threshold=threshold)
    answer = ask(index, model.embed([query]), 4, used)[0]
    write_answer(tmp_path / "page.html", index, query, answer, used)
    html = (tmp_path / "page.html").read_text()
    assert html.count("data:image/webp") == 5
    heading = {
        -1.0: "<h1>Several labels match</h1>",
        1.1: "<h1>Unknown</h1>",
        None: "<h1>Nearest images</h1>",
    }
    assert heading[threshold] in html
    assert "http" not in html.replace("http-equiv", "")
