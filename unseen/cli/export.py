"""`unseen export`: a trained run for other programs."""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from unseen.cli.options import MovedData, RunPath, Size
from unseen.cli.terminal import console, display
from unseen.export.agreement import MODES
from unseen.export.bundle import write_bundle
from unseen.export.inference import as_input
from unseen.export.onnx_file import write_onnx
from unseen.export.torch_program import write_program
from unseen.runs.prepare import reopen
from unseen.runs.trained_run import ImageLike, Trained
from unseen.search.image_sources import find

CHECKED = 8  # images a model is compared on


def export(
    run: RunPath,
    onnx: Annotated[Path | None, typer.Option(help="write an ONNX file")] = None,
    program: Annotated[
        Path | None, typer.Option("--torch", help="write a torch.export program (.pt2)")
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option(help="write a folder: both, weights, settings, model card")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="images to check with", show_default="some of the run's validation classes"
        ),
    ] = None,
    size: Size = None,
    data: MovedData = None,
) -> None:
    """Example: unseen export runs/birds --onnx birds.onnx

    Input is uint8 [N, 3, size, size], any N; normalisation is inside. Every file is compared with
    PyTorch on real images and not kept if a number differs by more than 0.0001; the code of a
    bundle is run on image files of every mode, and the bundle not kept if a cosine is below 0.999.
    """
    if onnx is None and program is None and bundle is None:
        raise ValueError("nothing to write: give --onnx FILE, --torch FILE or --bundle FOLDER")
    trained = Trained.open(run).at(size)
    request = as_input(trained, _images(run, images, data))
    if onnx is not None:
        _message(onnx, write_onnx(trained, onnx, request), len(request))
    if program is not None:
        _message(program, write_program(trained, program, request), len(request))
    if bundle is not None:
        differences, cosine = write_bundle(trained, bundle, request)
        for name, difference in differences.items():
            _message(bundle / name, difference, len(request))
        console.print(
            f"{bundle}: its code and unseen agree on image files of {len(MODES)} kinds "
            f"({', '.join(MODES)}): cosine at least {math.floor(1e5 * cosine) / 1e5}",
            soft_wrap=True,
        )


def _images(run: Path, user_images: Path | None, data: str | None) -> list[ImageLike]:
    if user_images is not None:
        return [source.path for source in find([user_images])[:CHECKED]]
    with display() as (_, callbacks):
        context, _folder = reopen(run, callbacks, data)
    items = context.split.validation
    some = items[np.linspace(0, len(items) - 1, CHECKED, dtype=int)]
    return [context.dataset.image(int(item)) for item in some]


def _message(path: Path, difference: float, count: int) -> None:
    console.print(
        f"{path}: differs from PyTorch by at most {difference:.1e} on {count} decoded images",
    )
