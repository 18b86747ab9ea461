"""`unseen embed`: pictures to vectors in a file."""

import io
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from unseen.cli.terminal import Size, console, display, tell_left_out
from unseen.data.pictures.decode import UnreadablePictureError
from unseen.experiment.trained import Trained
from unseen.files import replace_bytes
from unseen.search.ingest import find


def embed(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    images: Annotated[list[Path], typer.Argument(help="picture files, folders or tables of them")],
    out: Annotated[Path, typer.Option(help="the file to write: .npz, or .npy of vectors alone")],
    size: Size = None,
) -> None:
    """Example: unseen embed runs/birds photos/ --out photos.npz

    Writes `vectors` (n x D) and `paths` (n), and `labels` where pictures stand in class folders.
    A .npy file holds the vectors alone. Files that cannot be read are left out and named.
    """
    if out.suffix.lower() not in (".npz", ".npy"):
        raise ValueError(f"--out must end in .npz or .npy, got {out}")
    trained = Trained.open(run).at(size)
    found = find(images)
    unreadable: dict[int, UnreadablePictureError] = {}
    with display() as (_, watch):
        pictures, progress = [source.picture for source in found], watch.of("embedding")
        vectors = trained.embed(pictures, progress, unreadable.__setitem__)
    left_out = [error.line for _, error in sorted(unreadable.items())]
    if len(left_out) == len(found):
        raise ValueError(f"none of the {len(found):,} files can be read; the first: {left_out[0]}")
    sources = [source for place, source in enumerate(found) if place not in unreadable]
    file = io.BytesIO()
    if out.suffix.lower() == ".npy":
        np.save(file, vectors.numpy())
    else:
        np.savez(
            file,
            vectors=vectors.numpy(),
            paths=np.array([str(source.path) for source in sources]),
            labels=np.array([source.label or "" for source in sources]),
        )
    replace_bytes(out, file.getvalue())
    less = f", {len(left_out):,} files left out" if left_out else ""
    console.print(f"{len(sources):,} vectors of {vectors.shape[1]} numbers: {out}{less}")
    tell_left_out(left_out)
