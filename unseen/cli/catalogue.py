"""`unseen catalogue`: every method by name."""

import inspect
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from unseen import models
from unseen.cli.terminal import console
from unseen.config import build
from unseen.core import registry
from unseen.core.relevance import CLASSES, KINDS
from unseen.metrics.base import Clustering, Rejection
from unseen.models.backbone import BODIES
from unseen.training.objective import kinds_taken

BUILT_IN = {  # name -> its file, of the kinds whose files are no methods
    "backbones": BODIES,
    "networks": dict.fromkeys(models.PRESETS, "presets"),
}


COMPARING = ("losses", "miners", "samplers", "regularizers", "metrics")  # who is the same?


def list_methods(
    kind: Annotated[
        str | None, typer.Argument(help="losses, miners, samplers, regularizers, metrics, ...")
    ] = None,
    name: Annotated[str | None, typer.Argument(help="one method, in full")] = None,
) -> None:
    """Example: unseen catalogue losses

    Lists the methods of a kind with one line, paper and default values; `unseen catalogue losses
    margin` shows one in full, with its presets. Without a kind: the names of all. What installed
    packages announce stands among ours.
    """
    if kind is None:
        every = Table("kind", Column("names", overflow="fold"))
        for each in (*registry.KINDS, *BUILT_IN):
            names = [*BUILT_IN.get(each, ()), *registry.names(each)]
            every.add_row(each, ", ".join(names))
        console.print(every)
        return
    if name is not None:
        show(kind, name)
        return
    texts = (Column(head, overflow="fold") for head in ("what it does", "paper", "defaults"))
    table = Table("name", *texts)
    for ours in BUILT_IN.get(kind, ()):
        table.add_row(ours, _first_sentence(_text(kind, ours)))
    for entry in (registry.entry(kind, each) for each in registry.names(kind)):
        table.add_row(entry.name, _first_sentence(entry.line), entry.paper, _values(entry.defaults))
    console.print(table)
    for line in _taken(kind):
        console.print(line)


def show(kind: str, name: str) -> None:
    """One method in its own words, its values and what the sources used."""
    if name in BUILT_IN.get(kind, ()):
        console.print(_text(kind, name))
        return
    entry = registry.entry(kind, name)
    console.print(registry.text(kind, name))
    console.print("\nDefaults " + _values(entry.defaults))
    if kind in COMPARING:
        console.print("Takes    relevance.kind = " + ", ".join(kinds_of(kind, name)))
    for preset in entry.presets:
        values = registry.preset_values(kind, name, preset)
        console.print(f"Preset   {preset}: {_values(values) or 'the defaults'}")


def kinds_of(kind: str, name: str) -> tuple[str, ...]:
    """What a part takes for "the same"."""
    if kind == "samplers":
        return CLASSES if build.is_embedded(name) else KINDS
    result = registry.find(kind, name)
    if kind == "metrics":
        by_class = inspect.isclass(result) and issubclass(result, Clustering | Rejection)
        return CLASSES if by_class else KINDS
    return kinds_taken(result)


def _taken(kind: str) -> list[str]:
    """Who takes more than classes, by what they take."""
    if kind == "diagnostics":
        return ["all go by class, whatever relevance.kind is"]
    able: dict[str, list[str]] = {}
    for name in registry.names(kind) if kind in COMPARING else ():
        more = ", ".join(k for k in kinds_of(kind, name) if k not in CLASSES)
        able.setdefault(more, []).append(name)
    every = ", ".join(able.pop("", []))
    lines = [f"relevance.kind = {more}: {', '.join(names)}" for more, names in able.items()]
    others = "by class, whatever it is" if kind == "metrics" else "classes and levels alone"
    return [*lines, f"{others}: {every}"] if every else lines


def _text(kind: str, name: str) -> str:
    return inspect.getdoc(import_module(f"unseen.models.{BUILT_IN[kind][name]}")) or ""


def _first_sentence(text: str) -> str:
    """The first paragraph without the name it begins with."""
    line = " ".join(text.partition("\n\n")[0].split())
    return line.partition(": ")[2] or line


def _values(values: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())
