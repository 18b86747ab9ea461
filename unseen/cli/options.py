"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

STYLE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
}

RunPath = Annotated[Path, typer.Argument(help="a folder made by `unseen train`")]
IndexPath = Annotated[Path, typer.Argument(help="a folder made by `unseen index build`")]
Data = Annotated[str, typer.Argument(help="a folder of class folders, a table, or a data set")]
Settings = Annotated[
    list[str] | None, typer.Argument(help="key=value, e.g. data.root=... backbone=resnet50")
]
Images = Annotated[list[str], typer.Argument(help="files, folders, tables, tars, URIs")]

OutFile = Annotated[Path, typer.Option("--out", help="the file to write")]
OutFolder = Annotated[Path, typer.Option("--out", help="the folder to write")]
Html = Annotated[Path | None, typer.Option("--html", help="also write a page with the images")]
AsJson = Annotated[bool, typer.Option("--json", help="print everything as JSON, for scripts")]
MovedRun = Annotated[Path | None, typer.Option("--run", help="the run, if it has moved")]
MovedData = Annotated[
    str | None, typer.Option("--data", help="where the run's items lie now", show_default="as then")
]
OtherData = Annotated[
    list[str] | None,
    typer.Option("--also", help="other data, before and after training; repeatable"),
]
Size = Annotated[
    int | None,
    typer.Option(help="numbers of a descriptor: a nested size of the run", show_default="all"),
]
Levels = Annotated[
    int | None,
    typer.Option(
        help="folders down to a class; 0: the one that holds the image",
        show_default="as the run was trained",
        min=0,
    ),
]


def group(text: str) -> typer.Typer:
    """A command with sub-commands; text: its help."""
    return typer.Typer(help=text, no_args_is_help=True, **STYLE)
