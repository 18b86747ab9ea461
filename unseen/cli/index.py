"""`unseen index`: build and keep an index of images."""

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.cluster import cluster
from unseen.cli.index_exchange import export_index, import_from
from unseen.cli.index_upgrade import upgrade_index
from unseen.cli.options import (
    Images,
    IndexPath,
    Levels,
    MovedRun,
    OutFolder,
    RayCluster,
    RayWorkers,
    RunPath,
    Size,
    chosen_engine,
    group,
)
from unseen.cli.terminal import (
    console,
    display,
    log_left_out,
    log_lost_labels,
    print_labels,
)
from unseen.core.contracts import Progress
from unseen.runs.trained_run import Trained
from unseen.search import maintain, verify
from unseen.search.backends.by_name import KINDS, parse
from unseen.search.image_sources import Source, class_rule, find
from unseen.search.index import Index
from unseen.search.ingest import Ingested, ingest, model_entry
from unseen.search.manifest import ApproximateEntry, ExternalEntry, read
from unseen.search.shards import embedded_by
from unseen.search.writer import Writer

app = group(
    "Example: unseen index build runs/birds photos/ --out birds.index\n\n"
    "Build an index of images, add to it, remove from it, check it, group it."
)
app.command("export")(export_index)
app.command("import")(import_from)
app.command("upgrade")(upgrade_index)
app.command("cluster")(cluster)

Label = Annotated[str | None, typer.Option(help="of all these images; an empty one: no labels")]
RemoveMissing = Annotated[
    bool, typer.Option("--remove-missing", help="also when many files are gone at once")
]

Thorough = Annotated[
    bool, typer.Option("--thorough", help="reads every image, whatever its times and inode say")
]


@app.command()
def build(
    run: RunPath,
    images: Images,
    out: OutFolder,
    label: Label = None,
    levels: Levels = None,
    size: Size = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="milvus:URI or pgvector:URI searches there",
            show_default="exact here, faiss when large",
        ),
    ] = None,
    ray: RayCluster = None,
    workers: RayWorkers = None,
) -> None:
    """Example: unseen index build runs/birds photos/ --out birds.index

    Embeds images and writes them to a new index; images in class folders get the class as
    their label: the path of the folder that holds them, or what --levels says. Stopped or killed,
    the same command goes on. `--ray start` embeds on the workers of a cluster.
    """
    model = Trained.open(run).at(size)
    sources = _result(images, model, levels, label)
    exists = (out / "manifest.json").exists()
    external = None if backend is None else parse(backend, out)
    chosen = chosen_engine(ray, workers, model.config.training.machine.device)
    aside = out.with_name(f"{out.name}.shards")

    def work(writer: Writer, progress: Progress) -> Ingested:
        if external is not None and writer.manifest.external is None:
            writer.use_backend(external)
        if ray is None:
            return ingest(writer, model, sources, progress)
        shared = partial(embedded_by, aside=aside, engine=chosen, size=size, progress=progress)
        return ingest(writer, model, sources, embed=shared)

    entry = model_entry(model)
    _add(lambda: Writer.open(out) if exists else Writer.create(out, entry), work, sources)


@app.command()
def add(
    index: IndexPath,
    images: Images,
    label: Label = None,
    levels: Levels = None,
    run: MovedRun = None,
) -> None:
    """Example: unseen index add birds.index new/ --label "Snowy Owl"

    Embeds and adds images that are not in the index yet. A new class can be found at once.
    """
    model = maintain.model_of(index, run)
    sources = _result(images, model, levels, label)
    _add(
        lambda: Writer.open(index),
        lambda writer, progress: ingest(writer, model, sources, progress),
        sources,
    )


@app.command()
def remove(
    index: IndexPath,
    what: Annotated[list[str], typer.Argument(help="paths of images or folders, or ids")],
) -> None:
    """Example: unseen index remove birds.index photos/blurred.jpg 17

    Takes images out of the index; their files stay.
    """
    with Writer.open(index) as writer:
        removed = writer.remove(maintain.named(writer.index(), what))
        writer.refresh_backend()
    console.print(f"removed {removed:,} images, {len(Index.open(index)):,} stay")


@app.command()
def update(
    index: IndexPath,
    images: Annotated[
        list[str] | None, typer.Argument(help="also add what is new in these")
    ] = None,
    levels: Levels = None,
    run: MovedRun = None,
    remove_missing: RemoveMissing = False,
    thorough: Thorough = False,
) -> None:
    """Example: unseen index update birds.index photos/

    Brings the index in line with the files: changed ones are embedded again under their old id,
    vanished ones are removed, and get their id again if they come back. A file whose size, times or
    inode are other than they were is compared by its content.
    """
    model = maintain.model_of(index, run)
    new = _result(images, model, levels) if images else []

    def work(writer: Writer, progress: Progress) -> Ingested:
        how = {"remove_missing": remove_missing, "thorough": thorough}
        removed, done = maintain.update(writer, model, new, progress, **how)
        console.print(f"{removed:,} files are gone and were removed")
        return done

    _add(lambda: Writer.open(index), work, new)


@app.command("verify")
def check(index: IndexPath, thorough: Thorough = False) -> None:
    """Example: unseen index verify birds.index

    Reads every byte and compares it with its checksum, and looks whether the images are what was
    embedded; exit code 1 when something is wrong.
    """
    with display() as (_, callbacks):
        problems = verify.verify(index, callbacks.of("reading"))
        opened = None if problems else Index.open(index)
        changed = verify.changed_images(opened, thorough, callbacks.of("images")) if opened else []
    for problem in problems:
        console.print(str(problem), style="red")
    if problems:
        raise typer.Exit(1)
    if changed:
        console.print(
            f"{len(changed):,} images are not what was embedded, the first is {changed[0]}: "
            f"`unseen index update {shlex.quote(str(index))}` embeds them again",
            style="red",
        )
        raise typer.Exit(1)
    for _ in verify.leftovers(index)[:1]:
        console.print("a stopped writer left files behind; the next one removes them")
    console.print(f"{index}: {len(Index.open(index)):,} images, all as they were written")


@app.command()
def info(index: IndexPath) -> None:
    """Example: unseen index info birds.index

    Prints what the index holds, its bytes, and what share of the nearest its search finds.
    """
    opened = Index.open(index)
    known = verify.describe(opened)
    counts = f"{known.images:,} images, {known.labels:,} labels, segments: {known.segments:,}"
    console.print(f"{index}: {counts}")
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(known.num_bytes.items()))
    console.print(f"bytes: {sum(known.num_bytes.values()):,} ({kinds})")
    console.print(f"vectors: {known.size} numbers")
    console.print(f"columns for --where: {', '.join(opened.columns)}")
    console.print(f"search: {known.backend}, {_recall(known)}")


@app.command()
def rebuild(
    index: IndexPath,
    run: Annotated[
        Path | None,
        typer.Option(help="the run to embed with", show_default="the one it was made with"),
    ] = None,
    size: Size = None,
    remove_missing: RemoveMissing = False,
) -> None:
    """Example: unseen index rebuild birds.index --run runs/birds-2

    Embeds all its images again from their files, for a new or changed model. The old index
    answers until the new one is whole. Stopped or killed, the same command goes on.
    """
    model = maintain.model_of(index, run)
    if size is not None:
        model = Trained.open(model.folder.path).at(size)
    with display() as (_, callbacks):
        done = maintain.rebuild(
            index, model, callbacks.of("embedding"), remove_missing=remove_missing
        )
    _message(done, index)


def _result(
    images: list[str],
    model: Trained,
    levels: int | None,
    label: str | None = None,
) -> list[Source]:
    """The images that are meant, after a line on their labels."""
    rule = class_rule(model, levels)
    sources = find(images, label or None, label != "", rule)
    print_labels([source.label for source in sources], images, rule.keywords["levels"])
    return sources


def _recall(known: verify.Info) -> str:
    if known.recall is None:
        return "finds all of the nearest" if known.backend == "exact" else "asked by every search"
    fraction = f"{100 * known.recall:.1f} % of the 10 nearest"
    return f"finds {fraction} of exact search, on {known.num_queries} images"


def _add(
    open_writer: Callable[[], AbstractContextManager[Writer]],
    work: Callable[[Writer, Progress], Ingested],
    sources: list[Source],
) -> None:
    with open_writer() as writer, display() as (_, callbacks):
        done = work(writer, callbacks.of("embedding"))
        writer.refresh_backend(callbacks.of("indexing"))
        if not len(writer.index()):
            named = f"the first of {len(done.unreadable):,}: " if done.unreadable else ""
            raise ValueError(
                f"{writer.path} would be empty, no image could be read; {named}"
                f"{done.unreadable[0] if done.unreadable else 'none was given'}"
            )
    _message(done, writer.path)
    log_lost_labels([source.label for source in done.lost], [each.label for each in sources])


def _message(done: Ingested, path: Path) -> None:
    parts = [f"added {done.added:,}"]
    parts += [f"renewed {done.changed:,}"] if done.changed else []
    parts += [f"{done.same:,} were there"] if done.same else []
    parts += [f"{len(done.unreadable):,} cannot be read"] if done.unreadable else []
    console.print(f"{', '.join(parts)}; {path} holds {len(Index.open(path)):,} images")
    known = read(path)
    if known.approximate is not None:
        _log_recall(f"faiss ({known.approximate.kind}: {known.approximate.why})", known.approximate)
    if known.external is not None and known.external.effort:
        _log_recall(KINDS[known.external.kind].name, known.external)
    log_left_out(done.unreadable)


def _log_recall(who: str, backend: ApproximateEntry | ExternalEntry) -> None:
    console.print(
        f"searched by {who}; finds {100 * backend.recall:.1f} % of the 10 nearest of exact search, "
        f"on {backend.num_queries} images",
    )
