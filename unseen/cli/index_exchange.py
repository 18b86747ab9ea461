"""`unseen index export` and `import`: the vectors of an index where other programs keep theirs."""

from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from unseen.cli.options import IndexPath, OutFolder
from unseen.cli.terminal import console, display
from unseen.core.names import near_path
from unseen.core.uris import is_uri
from unseen.search.exchange.rows import header_of, import_index, rows_of
from unseen.search.index import Index


class Format(StrEnum):
    parquet = "parquet"
    lance = "lance"
    milvus = "milvus"
    npy = "npy"


MODULES = {
    Format.parquet: "parquet_file",
    Format.lance: "lance_table",
    Format.milvus: "milvus_collection",
    Format.npy: "array_folder",
}
URIS = (Format.lance, Format.milvus)  # those that other machines may have
Table = Annotated[str, typer.Option(help="its name in LanceDB or Milvus")]


def export_index(
    index: IndexPath,
    to: Annotated[Format, typer.Option(help="what to write")],
    out: Annotated[str, typer.Option(help="a file or folder; for lance and milvus also a URI")],
    table: Table = "images",
) -> None:
    """Example: unseen index export birds.index --to parquet --out birds.parquet

    Writes ids, paths, labels, metadata, thumbnails and vectors, the same bits as in the index. npy
    is a folder of arrays; lance a folder or s3://...; milvus a file.db or http://host:19530.
    """
    opened = Index.open(index)
    if to not in URIS and is_uri(out):
        raise ValueError(f"{out}: {to} is written to this disk, to a URI only --to lance or milvus")
    if to not in URIS and Path(out).exists():
        raise ValueError(f"{out} exists already: choose another --out")
    with display() as (_, callbacks):
        _format(to).write(out, header_of(opened), rows_of(opened, callbacks.of("writing")), table)
    console.print(f"{len(opened):,} images of {index}: {out}")


def import_from(
    source: Annotated[str, typer.Argument(help="what `unseen index export` wrote")],
    out: OutFolder,
    kind: Annotated[Format, typer.Option("--from", help="what it is")],
    table: Table = "images",
) -> None:
    """Example: unseen index import birds.parquet --from parquet --out copy.index

    Makes an index of what was exported, with the same ids. The run that made the vectors is needed
    for searching, not for this. Stopped or killed, the same command goes on.
    """
    if "://" not in source and not Path(source).exists():
        raise FileNotFoundError(f"no such file or folder: {source}{near_path(source)}")
    with display() as (_, callbacks):
        made = import_index(_format(kind).read(source, table), out, callbacks.of("reading"))
    console.print(f"{out} holds {len(made):,} images")


def _format(kind: Format) -> Any:
    """The module with its `write` and `read`."""
    return import_module(f"unseen.search.exchange.{MODULES[kind]}")
