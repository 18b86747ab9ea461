"""The lines of docs/vectors.md run."""

import re
from pathlib import Path

import numpy as np
import pytest

from unseen.cli.index_exchange import MODULES, Format
from unseen.search.exchange import parquet_file
from unseen.search.exchange.rows import header_of, rows_of
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.writer import Writer

PAGE = (Path(__file__).parents[3] / "docs" / "vectors.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_has_every_format_and_lines_that_compile() -> None:
    assert set(MODULES) == set(Format)
    assert {f"`{name}`" for name in Format} <= set(re.findall(r"^\| (`\w+`) \|", PAGE, re.M))
    for block in BLOCKS:
        compile(block, "docs/vectors.md", "exec")


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
    parquet_file.write("birds.parquet", header_of(index), rows_of(index), "")
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
