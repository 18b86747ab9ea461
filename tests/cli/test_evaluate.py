"""`unseen evaluate` of embeddings of any model, and the commands that look at runs."""

import sys
from pathlib import Path

import numpy as np
import pytest

from unseen.cli import main

TINY = [
    "data.max_classes=24",
    "data.size=16",
    "epochs=1",
    "batch_size=16",
    "embedding_size=16",
    "workers=0",
]
pytestmark = pytest.mark.usefixtures("narrow_network")


def unseen(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output, errors of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unseen", *words])
        with pytest.raises(SystemExit) as ended:
            main.run()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture
def foreign(tmp_path: Path) -> list[str]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 12)
    embeddings = rng.normal(size=(10, 8))[labels] + 0.2 * rng.normal(size=(120, 8))
    np.save(tmp_path / "x.npy", embeddings.astype(np.float32))
    np.save(tmp_path / "y.npy", np.array([f"class {label}" for label in labels]))
    return [str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy")]


def test_embeddings_of_any_model(capsys: pytest.CaptureFixture[str], foreign: list[str]) -> None:
    code, text, _ = unseen(capsys, "evaluate", "embeddings", *foreign)
    assert code == 0
    assert "R@1" in text
    assert "120 queries, 120 answers" in text
    gallery = [foreign[0], "--gallery-labels", foreign[2]]
    words = [*foreign, *gallery, "--metrics", "recall@1", "--over", "classes", "--no-normalize"]
    code, text, _ = unseen(capsys, "evaluate", "embeddings", *words)
    assert code == 0
    assert "100.0" in text
    assert "interval over classes" in " ".join(text.split())
    for kind in ("k-reciprocal", "expansion"):
        code, text, _ = unseen(capsys, "evaluate", "embeddings", *foreign, "--rerank", kind)
        assert (code, f"R@1 after {kind}: " in text) == (0, True)
    code, _, text = unseen(capsys, "evaluate", "embeddings", *words, "--rerank", "expansion")
    assert (code, "--rerank goes without a gallery" in text) == (2, True)


def test_rows_that_are_not_finite_and_labels_that_ask_nothing(
    capsys: pytest.CaptureFixture[str], foreign: list[str]
) -> None:
    np.save(foreign[2], np.arange(120))
    code, text, _ = unseen(capsys, "evaluate", "embeddings", *foreign, "--metrics", "recall@1,nmi")
    assert code == 0
    assert "100" not in text
    assert "nan: undefined, no item has another of its class" in text
    embeddings = np.load(foreign[0])
    embeddings[7, 3] = np.nan
    np.save(foreign[0], embeddings)
    code, _, text = unseen(capsys, "evaluate", "embeddings", *foreign)
    assert (code, text.count("\n")) == (2, 1)
    assert "1 of 120 rows hold NaN or infinity (rows 7)" in text


def test_an_estimate_from_some_queries(
    capsys: pytest.CaptureFixture[str], foreign: list[str]
) -> None:
    code, out, _ = unseen(
        capsys, "evaluate", "embeddings", *foreign, "--metrics", "recall@1", "--sample", "30"
    )
    assert code == 0
    assert "estimated from 30 of 120 queries" in out
    assert "30 queries, 120 answers" in out


def test_mistakes_get_one_line(capsys: pytest.CaptureFixture[str], foreign: list[str]) -> None:
    for words, message in (
        ([], "Missing argument"),
        (foreign[:1], "holds no labels: --labels FILE says where they are"),
        ([*foreign, foreign[0]], "holds no labels: --gallery-labels FILE"),
        ([*foreign, "--metrics", "recal@1"], "unknown metric 'recal'"),
        ([*foreign, "--over", "weeks"], "--over must be queries or classes, got weeks"),
    ):
        code, _, errors = unseen(capsys, "evaluate", "embeddings", *words)
        assert code == 2
        assert message in errors


def test_layers_diagnose_compare(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("margin", "triplet"):
        words = [*TINY, f"loss={name}", "--out", str(tmp_path / name)]
        assert unseen(capsys, "train", "glyphs", *words)[0] == 0
    run = str(tmp_path / "margin")
    code, text, _ = unseen(capsys, "evaluate", "run", run, "--layers", "stage2,pooled")
    assert code == 0
    assert "stage2" in text
    code, text, _ = unseen(capsys, "inspect", "diagnose", run)
    assert code == 0
    assert "Recall@1 is" in text
    page = tmp_path / "changed.html"
    code, text, _ = unseen(
        capsys, "evaluate", "compare", run, str(tmp_path / "triplet"), "--html", str(page)
    )
    assert code == 0
    assert "interval" in text
    assert page.exists()
    assert unseen(capsys, "report", run)[0] == 0
    assert "section-diagnosis" in (tmp_path / "margin" / "report" / "index.html").read_text()
