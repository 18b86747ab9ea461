"""`unseen export`: a trained run for other programs."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from unseen.cli.terminal import MovedData, Size, console, display
from unseen.experiment.run_context import reopen
from unseen.experiment.trained import Picture, Trained
from unseen.export.bundle import write_bundle
from unseen.export.inference import as_input
from unseen.export.onnx_file import write_onnx
from unseen.export.torch_program import write_program
from unseen.search.sources import find

CHECKED = 8  # pictures a model is compared on


def export(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    onnx: Annotated[Path | None, typer.Option(help="write an ONNX file")] = None,
    program: Annotated[
        Path | None, typer.Option("--torch", help="write a torch.export program (.pt2)")
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(help="write a folder: both, weights, settings, model card")
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            help="pictures to check with", show_default="some of the run's validation classes"
        ),
    ] = None,
    size: Size = None,
    data: MovedData = None,
) -> None:
    """Example: unseen export runs/birds --onnx birds.onnx

    Input is uint8 [N, 3, size, size], any N; normalisation is inside. Every file is compared with
    PyTorch on real pictures and not kept if a number differs by more than 0.0001.
    """
    if onnx is None and program is None and bundle is None:
        raise ValueError("nothing to write: give --onnx FILE, --torch FILE or --bundle FOLDER")
    trained = Trained.open(run).at(size)
    asked = as_input(trained, _pictures(run, pictures, data))
    if onnx is not None:
        _told(onnx, write_onnx(trained, onnx, asked), len(asked))
    if program is not None:
        _told(program, write_program(trained, program, asked), len(asked))
    if bundle is not None:
        for name, difference in write_bundle(trained, bundle, asked).items():
            _told(bundle / name, difference, len(asked))


def _pictures(run: Path, given: Path | None, data: str | None) -> list[Picture]:
    if given is not None:
        return [source.path for source in find([given])[:CHECKED]]
    with display() as (_, watch):
        context, _folder = reopen(run, watch, data)
    items = context.split.validation
    some = items[np.linspace(0, len(items) - 1, CHECKED, dtype=int)]
    return [context.dataset.picture(int(item)) for item in some]


def _told(path: Path, difference: float, count: int) -> None:
    console.print(
        f"{path}: differs from PyTorch by at most {difference:.1e} on {count} pictures",
    )
