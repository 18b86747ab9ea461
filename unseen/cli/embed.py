"""`unseen embed`: pictures to vectors in a file."""

import io
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from unseen.cli.terminal import console, display
from unseen.experiment.trained import Trained
from unseen.search.durable import replace_bytes
from unseen.search.ingest import find


def embed(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    images: Annotated[list[Path], typer.Argument(help="picture files, or folders of them")],
    out: Annotated[Path, typer.Option(help="the .npz file to write")],
) -> None:
    """Example: unseen embed runs/birds photos/ --out photos.npz

    Writes `vectors` (n x D) and `paths` (n), and `labels` where pictures stand in class folders.
    """
    trained = Trained.open(run)
    sources = find(images)
    with display() as (_, watch):
        vectors = trained.embed([source.path for source in sources], watch.of("embedding"))
    file = io.BytesIO()
    np.savez(
        file,
        vectors=vectors.numpy(),
        paths=np.array([str(source.path) for source in sources]),
        labels=np.array([source.label or "" for source in sources]),
    )
    replace_bytes(out, file.getvalue())
    console.print(f"{len(sources):,} vectors of {vectors.shape[1]} numbers: {out}", soft_wrap=True)
