"""`unseen train`: from pictures to a network and an honest score."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unseen import config as configs
from unseen import experiment, find_data, reports
from unseen.cli.allocator import keep_freed_memory
from unseen.cli.show_run import Shown
from unseen.cli.terminal import command_line, console, display, stages
from unseen.config import Config
from unseen.data.pictures.stored import CACHE_VARIABLE

if TYPE_CHECKING:  # the help of the command needs nothing that judges
    from unseen.training.result import Result


def train(
    data: Annotated[
        str,
        typer.Argument(
            help="`glyphs`, a folder of class folders, a .csv, an .npz, or a .toml recipe"
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help=f"key=value; the keys: {', '.join(Config.model_fields)}"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="a TOML file of settings")] = None,
    out: Annotated[
        Path | None, typer.Option(help="where the run goes", show_default="runs/...")
    ] = None,
    strict: Annotated[bool, typer.Option(help="stop at an unreadable picture")] = False,
    weights: Annotated[
        str | None, typer.Option(help="imagenet, or a file of the backbone's weights")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="the run ends within them", show_default="20 for photographs"),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="what runs share: frozen layers' activations", show_default="~/.cache/unseen"
        ),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option(help="a new run if the data of the last one have changed")
    ] = False,
) -> None:
    """Example: unseen train glyphs loss=margin epochs=5 --minutes 2

    Trains on some classes, selects on others, and judges the result on classes it never saw.
    `unseen train path/to/pictures` does the same with your own: path/to/pictures/<class>/*.jpg;
    --minutes 30 (minutes=30) plans depth, picture sizes and epochs so that it ends in time, and
    `unseen train recipe.toml data.root=path/to/pictures` takes data and settings from a file. A
    table of paths and labels (pictures.csv), a file of features (features.npz) and the folders of
    known benchmarks (CUB-200-2011, Cars196, ...) are recognised.
    """
    values = configs.load(config) if config else {}
    if data.endswith(".toml"):
        values |= configs.load(Path(data))
    else:
        values["data"] = find_data.data_table(data, values.get("data"))
    values |= {"strict": True} if strict else {}
    values |= {"weights": weights} if weights else {}
    values |= {"minutes": minutes} if minutes else {}
    if cache is not None:
        os.environ[CACHE_VARIABLE] = str(cache)
    settled = configs.make(configs.override(values, settings or []))
    run(settled, out, accept_changes)


def run(config: Config, out: Path | None, accept_changes: bool = False) -> "Result":
    """Trains into a folder and prints the scores; a finished folder is only shown again. Of
    several processes the first one speaks and writes."""
    keep_freed_memory()
    fitted = experiment.fit_config(config, out, command_line(), Shown(), accept_changes)
    if fitted.was_finished:
        console.print(f"{fitted.path} is finished; its scores:")
        console.print(reports.score_table(fitted.result))
    elif not console.quiet:
        with display() as (_, watch):
            say = stages(watch)
            say("preparing the report")  # what it is drawn with takes seconds to import
            written = reports.write_page(fitted.path, fitted.context.dataset, say)
        console.print(reports.score_table(fitted.result))
        console.print(f"report: {written}")
    return fitted.result
