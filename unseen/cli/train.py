"""`unseen train`: from images to a network and an honest score."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unseen import reports, runs
from unseen.cli.allocator import keep_freed_memory
from unseen.cli.run_display import Shown
from unseen.cli.terminal import command_line, console, display, stages
from unseen.config import find_data
from unseen.config import schema as configs
from unseen.config.keys import SHORT
from unseen.config.schema import Config

if TYPE_CHECKING:  # the help of the command needs nothing that evaluates
    from unseen.training.result import Result

RunOut = Annotated[
    Path | None, typer.Option("--out", help="where the run goes", show_default="runs/...")
]


def train(
    data: Annotated[
        str,
        typer.Argument(
            help="`glyphs`, a folder of class folders, a .csv, an .npz, or a .toml recipe"
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="key=value; the keys stand above"),
    ] = None,
    out: RunOut = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="the run ends within them", show_default="20 for photographs"),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="a new run if the last one's data have changed")
    ] = False,
) -> None:
    """Example: unseen train glyphs loss=margin epochs=5 --minutes 2

    Trains on some classes, selects on others, and evaluates the result on classes it never saw.
    `unseen train path/to/images` does the same with your own: path/to/images/<class>/*.jpg;
    --minutes 30 (time_budget=30) plans depth, image sizes and epochs so that it ends in time, and
    `unseen train recipe.toml data.root=path/to/images` takes data and settings from a file. A
    table of paths and labels (images.csv), a file of features (features.npz) and the folders of
    known benchmarks (CUB-200-2011, Cars196, ...) are recognised.

    Keys:
    """
    is_recipe = data.endswith(".toml")
    values = configs.load(Path(data)) if is_recipe else {"data": find_data.data_table(data)}
    values |= {"time_budget": minutes} if minutes else {}
    resolved = configs.make(configs.override(values, settings or []))
    run(resolved, out, accept_changes)


train.__doc__ = f"{(train.__doc__ or '').rstrip()} {', '.join(SHORT)}"


def run(config: Config, out: Path | None, accept_changes: bool = False) -> "Result":
    """Trains into a folder and prints the scores; a finished folder is only shown again. Of
    several processes the first one speaks and writes."""
    keep_freed_memory()
    fitted = runs.run_config(config, out, command_line(), Shown(), accept_changes)
    if fitted.was_finished:
        console.print(f"{fitted.path} is finished; its scores:")
        console.print(reports.score_table(fitted.result))
    elif not console.quiet:
        with display() as (_, callbacks):
            say = stages(callbacks)
            say("preparing the report")  # what it is drawn with takes seconds to import
            written = reports.write_page(fitted.path, fitted.context.dataset, say)
        console.print(reports.score_table(fitted.result))
        console.print(f"report: {written}")
    return fitted.result
