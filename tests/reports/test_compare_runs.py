"""Two runs on the same queries: the numbers, the words, the page, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from unseen.reports.compare_runs import compare_runs, comparison_table, write_page


@pytest.fixture
def two(run: Path, tmp_path: Path) -> tuple[Path, Path]:
    other = tmp_path / "other"
    rng = np.random.default_rng(1)
    first = rng.integers(0, 2, 30).astype(float)
    second = first.copy()
    second[first == 0] = 1.0  # the second is right everywhere
    first[7] = second[7] = np.nan
    np.savez(run / "embeddings" / "per_query.npz", **{"trained/recall@1": first, "pixels/a": first})
    shutil.copytree(run, other)
    np.savez(other / "embeddings" / "per_query.npz", **{"trained/recall@1": second})
    return run, other


def test_numbers_and_words(two: tuple[Path, Path]) -> None:
    pair = compare_runs(*two)
    assert list(pair.compared) == ["recall@1"]
    result, (one, other) = pair.compared["recall@1"], pair.values["recall@1"]
    assert other == 1.0
    assert result.difference.value == pytest.approx(1 - one)
    assert len(result.worsened) == 0
    assert pair.conclusion.startswith("other is better than my & run on unseen classes (R@1 +")
    back = compare_runs(two[1], two[0])
    assert back.conclusion.startswith("other is better than my & run on unseen classes (R@1 +")
    assert compare_runs(two[0], two[0]).conclusion.startswith("No clear difference")
    assert "inconclusive: one run each" in pair.conclusion
    console = Console(markup=False, width=80, record=True)
    console.print(comparison_table(pair).terminal())
    assert "100.0" in console.export_text()


def test_some_items_ask(two: tuple[Path, Path]) -> None:
    """Values are of the queries, those of clusterings of all items."""
    for place, folder in enumerate(two):
        with np.load(folder / "embeddings" / "test.npz") as arrays:
            kept = dict(arrays) | {"query": np.arange(20, 30)}
        np.savez(folder / "embeddings" / "test.npz", **kept)
        values = {"trained/recall@1": np.arange(10) / 10 + place, "trained/nmi": np.ones(30)}
        np.savez(folder / "embeddings" / "per_query.npz", **values)
    result = compare_runs(*two).compared
    assert result["recall@1"].difference.value == pytest.approx(1)
    assert result["nmi"].difference.value == 0


def test_the_page(two: tuple[Path, Path], tmp_path: Path, dataset: Any) -> None:
    with np.load(two[1] / "embeddings" / "test.npz") as arrays:
        kept = dict(arrays)
    kept["embeddings"] = np.eye(6, 8)[kept["labels"]].astype(np.float32)
    np.savez(two[1] / "embeddings" / "test.npz", **kept)
    html = write_page(compare_runs(*two), dataset, tmp_path / "new" / "c.html").read_text()
    assert "Right only with other" in html
    assert "my &amp; run" in html
    assert "<script>alert" not in html


def test_other_test_items_are_refused(two: tuple[Path, Path]) -> None:
    file = two[1] / "embeddings" / "test.npz"
    with np.load(file) as arrays:
        kept = dict(arrays)
    np.savez(file, **(kept | {"indices": kept["indices"] + 1}))
    with pytest.raises(ValueError, match="different test items"):
        compare_runs(*two)
    result = json.loads((two[1] / "result.json").read_text())
    result["data"]["fingerprint"] = "other"
    (two[1] / "result.json").write_text(json.dumps(result))
    with pytest.raises(ValueError, match="evaluated on different data"):
        compare_runs(*two)
    (two[1] / "result.json").unlink()
    with pytest.raises(ValueError, match="is not evaluated yet"):
        compare_runs(*two)
