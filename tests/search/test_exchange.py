"""An index goes elsewhere and comes back: the same ids, metadata, thumbnails and bits."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from unseen.search import exchange
from unseen.search.exchange import (
    Exported,
    Rows,
    header_of,
    import_index,
    read_lance,
    read_parquet,
    rows_of,
    write_lance,
    write_parquet,
)
from unseen.search.index import Index
from unseen.search.manifest import ModelEntry
from unseen.search.segment import NewImage
from unseen.search.verify import verify
from unseen.search.writer import Writer


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CHUNK", 16)


@pytest.fixture
def index(tmp_path: Path, entry: ModelEntry, rows: Callable[..., list[NewImage]]) -> Index:
    """With what an index can have: a removed last image, a renewed one that lies at the end, a
    box, columns, a compatible vector, a label of odd letters, an empty thumbnail, tiny numbers."""
    some = rows(50)
    odd = replace(some[7].metadata, label="Ā'\"\\ 'x", box=(1, 2, 30, 40), compatible=True)
    odd = replace(odd, columns={"price €": 19.5, "brand": "x'y", "count": 3})
    tiny = np.full(8, 1e-45, dtype=np.float32)
    some[7] = replace(some[7], metadata=odd, vector=tiny, thumbnail=b"")
    with Writer.create(tmp_path / "index", entry) as writer:
        writer.add(some[:30])
        writer.add(some[30:])
        writer.add([replace(some[3], id=4)])
        writer.remove([50, 17])
    return Index.open(tmp_path / "index")


def content(index: Index) -> list[object]:
    """Everything a reader can learn."""
    ids = index.ids.tolist()
    message = [index.thumbnail(id) for id in ids], list(index.every()), index.manifest.model
    return [ids, index.vectors().tobytes(), *message, index.manifest.next_id]


@pytest.mark.parametrize("name", ["parquet", pytest.param("lance", marks=pytest.mark.slow)])
def test_the_way_there_and_back_changes_no_bit(index: Index, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    if name == "parquet":
        write_parquet(out, header_of(index), rows_of(index))
        exported = read_parquet(out)
    else:
        write_lance(str(out), header_of(index), rows_of(index), "images")
        exported = read_lance(str(out), "images")
        with pytest.raises(ValueError, match="already exists"):
            write_lance(str(out), header_of(index), rows_of(index), "images")
    made = import_index(exported, tmp_path / "again")
    assert content(made) == content(index)
    assert made.ids.tolist()[-1] == 4
    assert verify(tmp_path / "again") == []


def test_an_import_that_was_stopped_goes_on(index: Index, tmp_path: Path) -> None:
    def broken(chunks: Iterator[Rows]) -> Iterator[Rows]:
        yield next(chunks)
        raise OSError("gone")

    whole = Exported(header_of(index), broken(rows_of(index)))
    with pytest.raises(OSError, match="gone"):
        import_index(whole, tmp_path / "again")
    assert len(Index.open(tmp_path / "again")) == 16
    made = import_index(Exported(header_of(index), rows_of(index)), tmp_path / "again")
    assert content(made) == content(index)


def test_what_is_not_whole_or_not_ours_is_refused(index: Index, tmp_path: Path) -> None:
    some = Exported(header_of(index), iter([next(rows_of(index))]))
    with pytest.raises(ValueError, match="16 rows came and 48 were exported"):
        import_index(some, tmp_path / "part")
    other = header_of(index).model_copy(update={"next_id": 99})
    with pytest.raises(ValueError, match="is another index"):
        import_index(Exported(other, rows_of(index)), tmp_path / "part")
    parquet.write_table(pyarrow.table({"id": [1]}), tmp_path / "y.parquet")
    with pytest.raises(ValueError, match="was not written by"):
        read_parquet(tmp_path / "y.parquet")
    (tmp_path / "x.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match="not a whole Parquet file"):
        read_parquet(tmp_path / "x.parquet")


def test_a_table_that_lacks_a_column_is_one_line(index: Index, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    write_parquet(out, header_of(index), rows_of(index))
    table = parquet.read_table(out)
    parquet.write_table(table.drop_columns(["columns"]), out)
    with pytest.raises(ValueError, match="no column columns: export the index again"):
        read_parquet(out)
