"""`unseen catalogue`: every method by name."""

from typing import Annotated

import typer
from rich.table import Column, Table

from unseen import catalogue
from unseen.cli.terminal import console


def list_methods(
    kind: Annotated[
        str | None, typer.Argument(help="losses, miners, samplers, regularizers, metrics, ...")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="one method, in full")] = None,
) -> None:
    """Example: unseen catalogue losses

    Lists the methods of a kind with one line, paper and default values; `unseen catalogue losses
    margin` shows one in full. Without a kind: how many there are of each.
    """
    if kind is None:
        for folder in catalogue.KINDS:
            console.print(f"{folder:<14} {', '.join(catalogue.names(folder)) or '-'}")
        return
    if name is not None:
        console.print(catalogue.text(kind, name), markup=False)
        return
    table = Table("name", "what it does", Column("paper", overflow="fold"), "defaults")
    for entry in (catalogue.entry(kind, each) for each in catalogue.names(kind)):
        defaults = " ".join(f"{key}={value}" for key, value in entry.defaults.items())
        line = entry.line.partition(": ")[2] or entry.line
        table.add_row(entry.name, line, entry.paper, defaults)
    console.print(table)
