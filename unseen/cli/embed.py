"""`unseen embed`: images to vectors in a file."""

import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from unseen.cli.options import (
    Images,
    Levels,
    RayCluster,
    RayWorkers,
    RunPath,
    Size,
    chosen_engine,
)
from unseen.cli.terminal import (
    console,
    display,
    log_left_out,
    log_lost_labels,
    print_labels,
)
from unseen.core import uris
from unseen.core.contracts import Progress
from unseen.core.files import replace_bytes
from unseen.core.uris import Place
from unseen.data.images import table_file
from unseen.data.images.decode import UnreadableImageError
from unseen.runs.job_engines import Engine
from unseen.runs.trained_run import Trained
from unseen.search.image_sources import Source, class_rule, find
from unseen.search.shards import SHARD, begin, complete

ARRAYS = (".npz", ".npy")


def embed(
    run: RunPath,
    images: Images,
    out: Annotated[
        str, typer.Option(help="the file to write: .npz, .npy, .csv or .parquet; or a folder/")
    ],
    size: Size = None,
    levels: Levels = None,
    ray: RayCluster = None,
    workers: RayWorkers = None,
    shard: Annotated[int, typer.Option(help="images in a file of a folder", min=1)] = SHARD,
) -> None:
    """Example: unseen embed runs/birds photos/ --out photos.npz

    Writes `vectors` (n x D) and `paths` (n), and `labels` where images stand in class folders.
    A .npy file holds the vectors alone, a .csv a column for each of their numbers. Files that
    cannot be read are left out and named. `unseen evaluate embeddings` reads all of them.

    `--out vectors/`, or a URI such as s3://bucket/vectors, writes Parquet files of some
    thousand images each; stopped or killed, the same command goes on. `--ray start` shares them
    among workers, here or on a cluster.
    """
    is_folder, suffix = out.endswith("/") or not uris.suffix(out), uris.suffix(out)
    if not is_folder and (suffix not in (*ARRAYS, *table_file.SUFFIXES) or ray is not None):
        raise ValueError(
            "--out must end in .npz, .npy, .csv, .tsv or .parquet, or be a folder (vectors/), as "
            f"--ray needs; got {out}"
        )
    trained = Trained.open(run).at(size)
    rule = class_rule(trained, levels)
    result = find(images, rule=rule)
    print_labels([source.label for source in result], images, rule.keywords["levels"])
    if is_folder:
        who = chosen_engine(ray, workers, trained.config.training.machine.device)
        with display() as (_, callbacks):
            folder, progress = uris.as_place(out.rstrip("/")), callbacks.of("embedding")
            _in_shards(trained, result, folder, who, size, shard, progress)
        return
    unreadable: dict[int, UnreadableImageError] = {}
    with display() as (_, callbacks):
        pixels, progress = [source.image for source in result], callbacks.of("embedding")
        vectors = trained.embed(pixels, progress, unreadable.__setitem__)
    left_out = [error.line for _, error in sorted(unreadable.items())]
    if len(left_out) == len(result):
        raise ValueError(f"none of the {len(result):,} files can be read; the first: {left_out[0]}")
    sources = [source for place, source in enumerate(result) if place not in unreadable]
    paths, labels = [str(s.path) for s in sources], [s.label or "" for s in sources]
    _write(Path(out), vectors.numpy(), paths, labels)
    less = f", {len(left_out):,} files left out" if left_out else ""
    console.print(f"{len(sources):,} vectors of {vectors.shape[1]} numbers: {out}{less}")
    log_left_out(left_out)
    log_lost_labels([result[place].label for place in unreadable], [s.label for s in result])


def _in_shards(
    trained: Trained,
    result: list[Source],
    out: Place,
    engine: Engine,
    size: int | None,
    shard: int,
    progress: Progress,
) -> None:
    job = begin(trained, result, out, shard=shard)
    lost = complete(job, out, engine, size, progress)
    left_out = [f"{path} ({why})" for _, path, why in lost]
    if len(left_out) == len(result):
        raise ValueError(f"none of the {len(result):,} files can be read; the first: {left_out[0]}")
    less = f", {len(left_out):,} files left out" if left_out else ""
    console.print(
        f"{len(result) - len(left_out):,} vectors of {job.model.size} numbers in "
        f"{len(job.shards):,} files: {out}{less}"
    )
    log_left_out(left_out)
    unread = {path for _, path, _ in lost}
    labels = [source.label for source in result if str(source.path) in unread]
    log_lost_labels(labels, [source.label for source in result])


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
