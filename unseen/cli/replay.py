"""`unseen replay`: a step that broke, once more."""

from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.terminal import console
from unseen.experiment import replay as replays

SHOWN = 12  # parameters named one by one


def replay(
    file: Annotated[Path, typer.Argument(help="broken_step.pt in the folder of a run")],
) -> None:
    """Example: unseen replay runs/glyphs-margin-seed0/broken_step.pt

    Repeats the step at which a run stopped because its loss or gradient was not finite, and says
    where that starts. The file holds all that is needed: batch, weights, settings.
    """
    found = replays.replay(file)
    console.print(f"step {found.step}: {found.why or 'it does not break here'}")
    console.print("terms: " + "  ".join(f"{k} {v:.6g}" for k, v in found.terms.items()))
    if found.layer is not None:
        console.print(f"first that is not finite: {found.layer}")
    if found.parameters:
        more = f" and {len(found.parameters) - SHOWN} more" if found.parameters[SHOWN:] else ""
        console.print(f"gradients not finite: {', '.join(found.parameters[:SHOWN])}{more}")
    console.print(f"pictures: {', '.join(map(str, found.indices))}")
