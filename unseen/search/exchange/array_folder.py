"""An index as plain arrays, for whoever has numpy and nothing else.

    header.json     model, number of rows
    vectors.npy     float32 [n, D]
    ids.npy         int64 [n]
    images.jsonl  n lines: path, label, state of the file
    thumbnails.bin  WebP files one after the other
    ends.npy        int64 [n]: where each ends

Made aside and renamed: a folder of that name is whole.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unseen.core import read_limits
from unseen.core.files import new_folder, refuse_links, write_bytes
from unseen.search.exchange.rows import CHUNK, Exported, Header, Rows
from unseen.search.segment import Metadata


def write(out: str, header: Header, chunks: Iterator[Rows], table: str) -> None:
    """The whole folder or none. table: a folder has no name for it."""
    with new_folder(Path(out)) as aside:
        _fill(aside, header, chunks)
        write_bytes(aside / "header.json", header.model_dump_json().encode())


def _fill(folder: Path, header: Header, chunks: Iterator[Rows]) -> None:
    shape = (header.count, header.model.size)
    vectors = np.lib.format.open_memmap(
        folder / "vectors.npy", mode="w+", dtype=np.float32, shape=shape
    )
    ids, lengths, place = [], [], 0
    with (
        (folder / "images.jsonl").open("wb") as lines,
        (folder / "thumbnails.bin").open("wb") as small,
    ):
        for rows in chunks:
            vectors[place : place + len(rows.ids)] = rows.vectors
            lines.writelines(metadata.line() for metadata in rows.metadata)
            small.writelines(rows.thumbnails)
            ids.append(rows.ids)
            lengths += [len(content) for content in rows.thumbnails]
            place += len(rows.ids)
    vectors.flush()
    np.save(folder / "ids.npy", np.concatenate([np.zeros(0, dtype=np.int64), *ids]))
    np.save(folder / "ends.npy", np.cumsum(lengths, dtype=np.int64))
    for file in folder.iterdir():
        with file.open("rb+") as written:
            os.fsync(written.fileno())


def read(source: str, table: str) -> Exported:
    folder = Path(source)
    refuse_links(folder)
    if not (folder / "header.json").is_file():
        raise ValueError(f"{folder} was not written by `unseen index export --to npy`")
    header = Header.read((folder / "header.json").read_bytes(), folder)
    return Exported(header, _chunks(folder))


def _chunks(folder: Path) -> Iterator[Rows]:
    vectors = read_limits.load(folder / "vectors.npy", mmap_mode="r")
    ids, ends = read_limits.load(folder / "ids.npy"), read_limits.load(folder / "ends.npy")
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    with (
        (folder / "images.jsonl").open("rb") as lines,
        (folder / "thumbnails.bin").open("rb") as small,
    ):
        for first in range(0, len(ids), CHUNK):
            some = slice(first, first + CHUNK)
            metadata = [Metadata.parsed(line) for _, line in zip(ids[some], lines, strict=False)]
            sizes = (ends[some] - starts[some]).tolist()
            yield Rows(ids[some], vectors[some], metadata, [small.read(size) for size in sizes])
