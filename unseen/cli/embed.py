"""`unseen embed`: pictures to vectors in a file."""

import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from unseen import addresses
from unseen.addresses import Place
from unseen.cli.engine import Address, EngineOption, EngineWorkers, chosen_engine
from unseen.cli.terminal import Size, console, display, tell_left_out
from unseen.contracts import Progress
from unseen.data.pictures import table_file
from unseen.data.pictures.decode import UnreadablePictureError
from unseen.experiment.engines import Engine
from unseen.experiment.trained import Trained
from unseen.files import replace_bytes
from unseen.search.shards import SHARD, begin, complete
from unseen.search.sources import Source, find

ARRAYS = (".npz", ".npy")


def embed(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    images: Annotated[
        list[str], typer.Argument(help="picture files, folders, tables, tars, addresses")
    ],
    out: Annotated[
        str, typer.Option(help="the file to write: .npz, .npy, .csv or .parquet; or a folder/")
    ],
    size: Size = None,
    engine: EngineOption = "local",
    address: Address = None,
    workers: EngineWorkers = None,
    shard: Annotated[int, typer.Option(help="pictures in a file of a folder", min=1)] = SHARD,
) -> None:
    """Example: unseen embed runs/birds photos/ --out photos.npz

    Writes `vectors` (n x D) and `paths` (n), and `labels` where pictures stand in class folders.
    A .npy file holds the vectors alone, a .csv a column for each of their numbers. Files that
    cannot be read are left out and named. `unseen evaluate --embeddings` reads all of them.

    `--out vectors/`, or an address such as s3://bucket/vectors, writes Parquet files of some
    thousand pictures each; stopped or killed, the same command goes on. `--engine ray` shares them
    among workers, here or on a cluster.
    """
    is_folder, suffix = out.endswith("/") or not addresses.suffix(out), addresses.suffix(out)
    if not is_folder and (suffix not in (*ARRAYS, *table_file.SUFFIXES) or engine != "local"):
        raise ValueError(
            "--out must end in .npz, .npy, .csv, .tsv or .parquet, or be a folder (vectors/), as "
            f"--engine ray needs; got {out}"
        )
    trained = Trained.open(run).at(size)
    found = find(images)
    if is_folder:
        who = chosen_engine(engine, address, workers, trained.config.device)
        with display() as (_, watch):
            folder, progress = addresses.as_place(out.rstrip("/")), watch.of("embedding")
            _in_shards(trained, found, folder, who, size, shard, progress)
        return
    unreadable: dict[int, UnreadablePictureError] = {}
    with display() as (_, watch):
        pictures, progress = [source.picture for source in found], watch.of("embedding")
        vectors = trained.embed(pictures, progress, unreadable.__setitem__)
    left_out = [error.line for _, error in sorted(unreadable.items())]
    if len(left_out) == len(found):
        raise ValueError(f"none of the {len(found):,} files can be read; the first: {left_out[0]}")
    sources = [source for place, source in enumerate(found) if place not in unreadable]
    paths, labels = [str(s.path) for s in sources], [s.label or "" for s in sources]
    _write(Path(out), vectors.numpy(), paths, labels)
    less = f", {len(left_out):,} files left out" if left_out else ""
    console.print(f"{len(sources):,} vectors of {vectors.shape[1]} numbers: {out}{less}")
    tell_left_out(left_out)


def _in_shards(
    trained: Trained,
    found: list[Source],
    out: Place,
    engine: Engine,
    size: int | None,
    shard: int,
    progress: Progress,
) -> None:
    job = begin(trained, found, out, shard=shard)
    lost = complete(job, out, engine, size, progress)
    left_out = [f"{path} ({why})" for _, path, why in lost]
    if len(left_out) == len(found):
        raise ValueError(f"none of the {len(found):,} files can be read; the first: {left_out[0]}")
    less = f", {len(left_out):,} files left out" if left_out else ""
    console.print(
        f"{len(found) - len(left_out):,} vectors of {job.model.size} numbers in "
        f"{len(job.shards):,} files: {out}{less}"
    )
    tell_left_out(left_out)


def _write(out: Path, vectors: NDArray[np.float32], paths: list[str], labels: list[str]) -> None:
    suffix, file = out.suffix.lower(), io.BytesIO()
    if suffix in ARRAYS:
        if suffix == ".npy":
            np.save(file, vectors)
        else:
            np.savez(file, vectors=vectors, paths=np.array(paths), labels=np.array(labels))
        replace_bytes(out, file.getvalue())
        return
    columns: dict[str, list[Any]] = {"path": paths} | ({"label": labels} if any(labels) else {})
    if suffix in table_file.PARQUET:
        columns["vector"] = list(vectors)
    else:
        columns |= {f"d{place}": column.tolist() for place, column in enumerate(vectors.T)}
    table_file.write(out, columns)
