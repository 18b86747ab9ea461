"""The lines of docs/vectors.md run."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unseen.cli.index_exchange import Format
from unseen.search.exchange import header_of, rows_of, write_parquet
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.writer import Writer

PAGE = (Path(__file__).parents[2] / "docs" / "vectors.md").read_text()
LIBRARIES = ("pandas", "polars", "duckdb")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_has_every_format_and_lines_that_compile() -> None:
    assert {f"`{name}`" for name in Format} <= set(re.findall(r"^\| (`\w+`) \|", PAGE, re.M))
    for block in BLOCKS:
        compile(block, "docs/vectors.md", "exec")


@pytest.mark.parametrize("library", list(filter(find_spec, LIBRARIES)))
def test_others_read_the_table(
    tmp_path: Path,
    entry: ModelEntry,
    rows: object,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
) -> None:
    assert callable(rows)
    monkeypatch.chdir(tmp_path)
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.add(rows(60))
        writer.remove([3])
    index = Index.open(tmp_path / "i")
    write_parquet(Path("birds.parquet"), header_of(index), rows_of(index))
    said: dict[str, Any] = {}
    exec(next(block for block in BLOCKS if f"import {library}" in block), said)
    if library == "pandas":
        assert said["table"].index.tolist() == index.ids.tolist()
        labels = said["labels"].to_dict()
    else:
        labels = dict(said["labels"].rows() if library == "polars" else said["labels"].fetchall())
    assert labels == index.labels
    if library != "duckdb":
        np.testing.assert_array_equal(said["vectors"], index.vectors())
    if library != "polars":
        nearest = index.search(index.vectors()[0], k=10).ids[0].tolist()
        first = said["first"]
        ids = first.tolist() if library == "pandas" else [id for (id,) in first.fetchall()]
        assert ids == nearest


def test_qdrant_finds_what_exact_search_finds(
    tmp_path: Path, entry: ModelEntry, rows: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qdrant_client import models

    assert callable(rows)
    monkeypatch.chdir(tmp_path)
    with Writer.create(tmp_path / "i", entry) as writer:
        writer.add(rows(200))
        writer.remove([3])
    index = Index.open(tmp_path / "i")
    write_parquet(Path("birds.parquet"), header_of(index), rows_of(index))
    said: dict[str, object] = {}
    exec(next(block for block in BLOCKS if "QdrantClient" in block), said)
    client = said["client"]
    try:
        queries = np.stack([row.vector for row in rows(3, first=9000)])
        only = models.FieldCondition(key="label", match=models.MatchValue(value="label 1"))
        for chosen, where in ((None, None), (models.Filter(must=[only]), "label = 'label 1'")):
            for query in queries:
                answer = client.query_points(  # type: ignore[attr-defined]
                    "birds", query.tolist(), limit=10, query_filter=chosen
                )
                expected = index.search(query, k=10, where=where)
                assert [point.id for point in answer.points] == expected.ids[0].tolist()
    finally:
        client.close()  # type: ignore[attr-defined]
