"""Arguments and options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unseen.runs.job_engines import Engine

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
RayCluster = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="CLUSTER",
        help="embed on Ray: `start` one here, `auto` for this machine's, or HOST:PORT",
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option("--workers", help="that Ray uses", show_default="all processors or GPUs", min=1),
]


def group(text: str) -> typer.Typer:
    """A command with sub-commands; text: its help."""
    return typer.Typer(help=text, no_args_is_help=True, **STYLE)


def chosen_engine(ray: str | None, workers: int | None, device: str) -> "Engine":
    """What computes the embeddings: this process, or the workers of a Ray cluster."""
    from unseen.runs.job_engines import Local, Ray  # noqa: PLC0415 - the list of commands needs none

    if ray is not None:
        cluster = None if ray == "start" else ray
        return Ray(cluster, workers, "cuda" if device.startswith("cuda") else "cpu")
    if workers is not None:
        raise ValueError("--workers goes with --ray")
    return Local()
