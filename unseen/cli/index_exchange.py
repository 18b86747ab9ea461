"""`unseen index export` and `import`: the vectors of an index where other programs keep theirs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.options import IndexPath, OutFolder
from unseen.cli.terminal import console, display
from unseen.core.names import near_path
from unseen.core.uris import is_uri
from unseen.search import exchange
from unseen.search.index import Index


class Format(StrEnum):
    parquet = "parquet"
    lance = "lance"


Table = Annotated[
    str | None, typer.Option(help="its name in LanceDB", show_default="images, with lance")
]


def export_index(
    index: IndexPath,
    to: Annotated[Format, typer.Option(help="what to write")],
    out: Annotated[str, typer.Option(help="a file; for lance a folder or URI")],
    table: Table = None,
) -> None:
    """Example: unseen index export birds.index --to parquet --out birds.parquet

    Writes ids, paths, labels, metadata, thumbnails and vectors, the same bits as in the index.
    lance: a table in a folder or s3://...
    """
    opened = Index.open(index)
    name = _table(to, table)
    if to is Format.parquet and is_uri(out):
        raise ValueError(f"{out}: parquet is written to this disk, to a URI only --to lance")
    if to is Format.parquet and Path(out).exists():
        raise ValueError(f"{out} exists already: choose another --out")
    header = exchange.header_of(opened)
    with display() as (_, callbacks):
        rows = exchange.rows_of(opened, callbacks.of("writing"))
        if to is Format.parquet:
            exchange.write_parquet(Path(out), header, rows)
        else:
            exchange.write_lance(out, header, rows, name)
    console.print(f"{len(opened):,} images of {index}: {out}")


def import_from(
    source: Annotated[str, typer.Argument(help="what `unseen index export` wrote")],
    out: OutFolder,
    kind: Annotated[Format, typer.Option("--from", help="what it is")],
    table: Table = None,
) -> None:
    """Example: unseen index import birds.parquet --from parquet --out copy.index

    Makes an index of what was exported, with the same ids. The run that made the vectors is needed
    for searching, not for this. Stopped or killed, the same command goes on.
    """
    name = _table(kind, table)
    if "://" not in source and not Path(source).exists():
        raise FileNotFoundError(f"no such file or folder: {source}{near_path(source)}")
    with display() as (_, callbacks):
        if kind is Format.parquet:
            exported = exchange.read_parquet(Path(source))
        else:
            exported = exchange.read_lance(source, name)
        made = exchange.import_index(exported, out, callbacks.of("reading"))
    console.print(f"{out} holds {len(made):,} images")


def _table(kind: Format, table: str | None) -> str:
    if kind is Format.parquet and table is not None:
        raise ValueError("--table is the name of a table of LanceDB: leave it out with parquet")
    return table or "images"
