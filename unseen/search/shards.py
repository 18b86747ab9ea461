"""Vectors of many images as Parquet files, one a shard, made by one process or many:

    vectors/job.json              model, number of images, size of shards and batches
    vectors/listing.parquet       path, label, box and columns of every image, a row group a shard
    vectors/shard-00017.parquet   id, path, label, num_bytes, modified, mark, digest, box, columns,
                                  vector
    vectors/unreadable.parquet    id, path, reason

`id` is the place of an image in the listing. A shard is written whole, and from the same images
in the same batches whoever makes it: a job that was killed goes on with the shards that are not
there, and its files are the same. The folder may be an address (`s3://bucket/vectors`).
"""

import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from unseen.core import uris
from unseen.core.contracts import Progress
from unseen.core.files import refuse_links
from unseen.core.uris import Place
from unseen.data.containers import locations
from unseen.data.images.table_file import arrow, parquet_of
from unseen.runs.job_engines import Engine
from unseen.runs.trained_run import Trained
from unseen.search.embedding import Unreadable, Wanted, embedded, model_entry
from unseen.search.exchange import Header, Rows, from_batch, schema_of, to_batch
from unseen.search.image_sources import Source
from unseen.search.manifest import Entry, ModelEntry
from unseen.search.segment import NewImage

JOB, LISTING, UNREADABLE = "job.json", "listing.parquet", "unreadable.parquet"
SHARD = 4096  # images in a file
BATCHES = (16, 32, 64, 128, 256)  # that are tried; of equal ones the smallest
_ENOUGH = 0.95  # of the best rate
_SLOW = 2.0  # seconds that a batch may take
_LOST = b"unreadable"


class Job(Entry):
    """What is embedded how."""

    model: ModelEntry
    listing: str  # a hash of every image's place, label and box
    count: int
    shard: int
    batch: int
    thumbnails: bool

    @property
    def shards(self) -> range:
        return range(-(-self.count // self.shard))


def begin(
    model: Trained,
    sources: Sequence[Source],
    out: Place,
    *,
    thumbnails: bool = False,
    batch: int | None = None,
    shard: int = SHARD,
) -> Job:
    """Writes down what is to be done, or finds that it was; another job in `out` is refused."""
    listing = _digest(sources)
    if (known := job_in(out)) is not None:
        same = known.model.fingerprint == model.fingerprint and known.thumbnails == thumbnails
        if not same or known.listing != listing:
            raise ValueError(f"{out} holds vectors of another model or of other images")
        return known
    job = Job(
        model=model_entry(model),
        listing=listing,
        count=len(sources),
        shard=shard,
        batch=batch or fastest_batch(model, sources),
        thumbnails=thumbnails,
    )
    _write_listing(uris.inside(out, LISTING), sources, shard)
    uris.write(uris.inside(out, JOB), job.model_dump_json(indent=1).encode())
    return job


def job_in(out: Place) -> Job | None:
    if isinstance(out, Path):
        refuse_links(out)
    place = uris.inside(out, JOB)
    if not uris.exists(place):
        return None
    try:
        return Job.model_validate_json(uris.read(place))
    except ValidationError as error:
        raise ValueError(f"{place} was not written by this version of unseen") from error


def complete(
    job: Job, out: Place, engine: Engine, size: int | None, progress: Progress | None = None
) -> list[tuple[int, str, str]]:
    """Makes the shards that are not there; returns the images without a vector: id, path, why."""
    there = [shard for shard in job.shards if uris.exists(_file(out, shard))]
    todo = [shard for shard in job.shards if shard not in set(there)]
    done = sum(min(job.shard, job.count - shard * job.shard) for shard in there)
    for more in engine.run(partial(Worker, out, size), todo):
        done += more
        if progress is not None:
            progress(done, job.count)
    lost = [row for shard in job.shards for row in _lost(_file(out, shard))]
    columns = zip(*lost, strict=True) if lost else ([], [], [])
    names = zip(("id", "path", "reason"), columns, strict=True)
    uris.write(uris.inside(out, UNREADABLE), _parquet_of({n: list(c) for n, c in names}))
    return lost


class Worker:
    """Makes shards; holds the network. size: a nested size of the run's descriptor."""

    def __init__(self, out: Place, size: int | None) -> None:
        job = job_in(out)
        assert job is not None, "begun"
        self.out, self.job = out, job
        self.model = Trained.open(job.model.run).at(size)
        if self.model.fingerprint != job.model.fingerprint:
            raise ValueError(f"{job.model.run} has changed since {out} was begun")

    def __call__(self, shard: int) -> int:
        """The number of images of the shard, which is then on the disk."""
        lost: list[Unreadable] = []
        first = shard * self.job.shard
        wanted: list[Wanted] = [
            (source, first + row)
            for row, source in enumerate(_listed(uris.inside(self.out, LISTING), shard))
        ]
        batches = embedded(self.model, wanted, lost.append, self.job.batch, self.job.thumbnails)
        images = [image for batch in batches for image in batch]
        unreadable = [(item.wanted[1], str(item.wanted[0].path), item.reason) for item in lost]
        uris.write(_file(self.out, shard), self._content(images, sorted(unreadable)))
        return len(wanted)

    def _content(self, images: list[NewImage], lost: list[Any]) -> bytes:
        size = self.job.model.size
        header = Header(model=self.job.model, count=len(images), next_id=self.job.count)
        vectors = np.array([image.vector for image in images], np.float32).reshape(-1, size)
        ids = np.array([image.id for image in images], dtype=np.int64)
        metadata, small = [p.metadata for p in images], [p.thumbnail for p in images]
        schema = schema_of(header)
        schema = schema.with_metadata({_LOST: json.dumps(lost).encode(), **schema.metadata})
        batch = to_batch(Rows(ids, vectors, metadata, small), schema)
        if not self.job.thumbnails:
            batch = batch.drop_columns(["thumbnail"])
        file = io.BytesIO()
        pyarrow, parquet = arrow()
        table = pyarrow.Table.from_batches([batch])
        parquet.write_table(table, file, compression="zstd", use_dictionary=["label"])
        return file.getvalue()


def embedded_by(
    model: Trained,
    wanted: list[Wanted],
    lost: Callable[[Unreadable], None],
    *,
    aside: Path,
    engine: Engine,
    size: int | None,
    progress: Progress | None = None,
) -> Iterator[list[NewImage]]:
    """As `embedding.embedded`, by an engine: shards lie aside until the block after the last one,
    and what a stopped one has made of these images is taken up."""
    known = job_in(aside) if wanted else None
    names = {source.name: row for row, (source, _) in enumerate(wanted)}
    if known is None or not names.keys() <= {source.name for source in _every(known, aside)}:
        shutil.rmtree(aside, ignore_errors=True)
        known = begin(model, [source for source, _ in wanted], aside, thumbnails=True)
    reasons = {path: why for _, path, why in complete(known, aside, engine, size, progress)}
    for one in wanted:
        if (why := reasons.get(str(one[0].path))) is not None:
            lost(Unreadable(one, why))
    for rows in _rows(known, aside):
        columns = zip(rows.metadata, rows.vectors, rows.thumbnails, strict=True)
        yield [
            NewImage(metadata, vector, small, wanted[names[metadata.name]][1])
            for metadata, vector, small in columns
            if metadata.name in names
        ]
    shutil.rmtree(aside)


def _every(job: Job, out: Place) -> Iterator[Source]:
    for shard in job.shards:
        yield from _listed(uris.inside(out, LISTING), shard)


def _rows(job: Job, out: Place) -> Iterator[Rows]:
    """Everything that was made, shard by shard."""
    for shard in job.shards:
        with parquet_of(_file(out, shard)) as file:
            for batch in file.iter_batches(job.shard):
                yield from_batch(batch)


def fastest_batch(model: Trained, sources: Sequence[Source]) -> int:
    """How many images at once go fastest through the network here, on the first ones."""
    some: list[Any] = []
    for source in sources[: 2 * BATCHES[-1]]:
        try:
            some.append(model.prepared(source.image))
        except (ValueError, OSError):
            continue
        if len(some) == BATCHES[-1]:
            break
    import torch  # noqa: PLC0415 - in the worker already

    rates: dict[int, float] = {}
    for batch in BATCHES if some else ():
        images = torch.stack([some[place % len(some)] for place in range(batch)])
        model.vectors(images)
        before = time.perf_counter()
        model.vectors(images)
        took = time.perf_counter() - before
        rates[batch] = batch / took
        if took > _SLOW:
            break
    best = max(rates.values(), default=0.0)
    return next((batch for batch, rate in rates.items() if rate >= _ENOUGH * best), BATCHES[0])


def _file(out: Place, shard: int) -> Place:
    return uris.inside(out, f"shard-{shard:05d}.parquet")


def _digest(sources: Sequence[Source]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        known = f"{source.name}\0{source.label}\0{json.dumps(dict(source.columns))}\0"
        digest.update(known.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _write_listing(place: Place, sources: Sequence[Source], shard: int) -> None:
    columns: dict[str, list[Any]] = {
        "path": [str(source.path) for source in sources],
        "label": [source.label for source in sources],
        "box": [None if source.box is None else list(source.box) for source in sources],
        "columns": [json.dumps(dict(source.columns)) for source in sources],
    }
    uris.write(place, _parquet_of(columns, shard))


def _listed(place: Place, shard: int) -> Iterator[Source]:
    with parquet_of(place) as file:
        rows = file.read_row_group(shard).to_pylist()
    for row in rows:
        path = uris.as_place(row["path"])
        if locations.is_elsewhere(row["path"]):
            path = row["path"]
        box, columns = tuple(row["box"]) if row["box"] else None, json.loads(row["columns"])
        yield Source(path, row["label"], box, columns)


def _lost(place: Place) -> list[tuple[int, str, str]]:
    with parquet_of(place) as file:
        rows = json.loads((file.schema_arrow.metadata or {}).get(_LOST, b"[]"))
    return [(int(id), str(path), str(why)) for id, path, why in rows]


def _parquet_of(columns: dict[str, list[Any]], row_group: int | None = None) -> bytes:
    pyarrow, parquet = arrow()
    kinds = {"id": pyarrow.int64(), "box": pyarrow.list_(pyarrow.int64())}
    arrays = [pyarrow.array(c, kinds.get(n, pyarrow.string())) for n, c in columns.items()]
    file = io.BytesIO()
    table = pyarrow.Table.from_arrays(arrays, names=list(columns))
    parquet.write_table(table, file, row_group_size=row_group)
    return file.getvalue()
