"""`unseen evaluate`: judge a stored run again."""

from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.terminal import console, display
from unseen.experiment.judge import judge
from unseen.experiment.setting import reopen
from unseen.reports import tables


def evaluate(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
) -> None:
    """Example: unseen evaluate runs/glyphs-multi_similarity-seed0

    Reads the test classes with the stored network, also of a run that was stopped, and writes
    result.json. The manifest keeps count of every such reading.
    """
    with display() as (_, watch):
        setting, folder = reopen(run, watch)
        if not folder.file("weights.safetensors").exists():
            raise ValueError(
                f"{run} has no weights yet: it was stopped before its first epoch ended"
            )
        selection = folder.read_json("selection.json")
        result = judge(setting, folder, selection, "unseen evaluate", watch)
    console.print(tables.score_table(result))
