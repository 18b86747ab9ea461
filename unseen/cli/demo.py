"""`unseen demo`: the whole way on the built-in characters."""

from pathlib import Path
from typing import Annotated

import typer

from unseen import config as configs
from unseen.cli.terminal import console
from unseen.cli.train import run


def demo(
    out: Annotated[Path, typer.Option(help="where the run goes")] = Path("runs/demo"),
) -> None:
    """Example: unseen demo

    Renders characters, trains a small network on half of them, and measures how well it finds the
    other half, which it has never seen, beside raw pixels and the untrained network.
    """
    result = run(configs.make({"data": "glyphs"}), out)
    recall = {row: found.metrics["recall@1"].value for row, found in result.scores.items()}
    console.print(
        f"On {result.split.test_classes} characters it never saw, the nearest picture shows "
        f"the same character in {recall['trained']:.1%} of queries (raw pixels "
        f"{recall['pixels']:.1%}). "
        "Next: unseen train path/to/your/pictures",
    )
