"""`unseen catalogue`: every method by name."""

from typing import Annotated, Any

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
    margin` shows one in full, with its presets. Without a kind: the names of all.
    """
    if kind is None:
        for folder in catalogue.KINDS:
            console.print(f"{folder:<14} {', '.join(catalogue.names(folder)) or '-'}")
        return
    if name is not None:
        show(kind, name)
        return
    texts = (Column(head, overflow="fold") for head in ("what it does", "paper", "defaults"))
    table = Table("name", *texts)
    for entry in (catalogue.entry(kind, each) for each in catalogue.names(kind)):
        line = entry.line.partition(": ")[2] or entry.line
        table.add_row(entry.name, line, entry.paper, _values(entry.defaults))
    console.print(table)


def show(kind: str, name: str) -> None:
    """One method in its own words, its values and what the sources used."""
    entry = catalogue.entry(kind, name)
    console.print(catalogue.text(kind, name))
    console.print("\nDefaults " + _values(entry.defaults))
    for preset in entry.presets:
        values = catalogue.preset_values(kind, name, preset)
        console.print(f"Preset   {preset}: {_values(values) or 'the defaults'}")


def _values(values: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())
