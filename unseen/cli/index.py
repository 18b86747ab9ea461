"""`unseen index`: build and keep an index of pictures."""

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.engine import Address, EngineOption, EngineWorkers, chosen_engine
from unseen.cli.index_exchange import export_index, import_from
from unseen.cli.index_upgrade import upgrade_index
from unseen.cli.terminal import Size, console, display, tell_left_out
from unseen.contracts import Progress
from unseen.experiment.trained import Trained
from unseen.search import maintain, verify
from unseen.search import repair as mend
from unseen.search.index import Index
from unseen.search.info import Info, describe
from unseen.search.ingest import Ingested, ingest, model_entry
from unseen.search.manifest import ApproximateEntry, OutsideEntry, Precision, read
from unseen.search.shards import embedded_by
from unseen.search.sources import find
from unseen.search.stores.named import parse
from unseen.search.writer import Writer

app = typer.Typer(
    help="Example: unseen index build runs/birds photos/ --out birds.index\n\n"
    "Build an index of pictures, add to it, remove from it, check it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)

IndexFolder = Annotated[Path, typer.Argument(help="a folder made by `unseen index build`")]
Images = Annotated[list[str], typer.Argument(help="files, folders, tables, tars, addresses")]
Label = Annotated[str | None, typer.Option(help="of all these pictures")]
ByFolder = Annotated[bool, typer.Option("--folder-labels/--no-labels", help="root/<class>/**")]
Run = Annotated[Path | None, typer.Option(help="the run, if it is no longer where it was")]
RemoveMissing = Annotated[
    bool, typer.Option("--remove-missing", help="also when many files are gone at once")
]


@app.command()
def build(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    images: Images,
    out: Annotated[Path, typer.Option(help="the folder of the index")],
    label: Label = None,
    by_folder: ByFolder = True,
    size: Size = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="milvus:URI or lance:URI searches there; binary: by bits when large",
            show_default="exact here, faiss when large",
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="of the vectors kept: int8 takes a quarter", show_default="float32"),
    ] = None,
    engine: EngineOption = "local",
    address: Address = None,
    workers: EngineWorkers = None,
) -> None:
    """Example: unseen index build runs/birds photos/ --out birds.index

    Embeds pictures and writes them to a new index; pictures in class folders get the class as
    their label. Stopped or killed, the same command goes on. `--engine ray` embeds on the workers
    of a cluster.
    """
    model = Trained.open(run).at(size)
    sources = find(images, label, by_folder)
    exists = (out / "manifest.json").exists()
    outside = None if store in (None, "binary") else parse(store, out)
    chosen = chosen_engine(engine, address, workers, model.config.device)
    aside = out.with_name(f"{out.name}.shards")

    def work(writer: Writer, progress: Progress) -> Ingested:
        if precision not in (None, writer.manifest.precision):
            raise ValueError(f"{out} keeps {writer.manifest.precision}: choose another --out")
        if outside is not None and writer.manifest.outside is None:
            writer.use_store(outside)
        if store == "binary" and writer.manifest.first_stage is None:
            writer.use_first_stage("binary")
        if engine == "local":
            return ingest(writer, model, sources, progress)
        shared = partial(embedded_by, aside=aside, engine=chosen, size=size, progress=progress)
        return ingest(writer, model, sources, embed=shared)

    create = partial(Writer.create, out, model_entry(model), precision=precision or "float32")
    _add(lambda: Writer.open(out) if exists else create(), work)


@app.command()
def add(
    index: IndexFolder,
    images: Images,
    label: Label = None,
    by_folder: ByFolder = True,
    run: Run = None,
) -> None:
    """Example: unseen index add birds.index new/ --label "Snowy Owl"

    Embeds and adds pictures that are not in the index yet. A new class can be found at once.
    """
    model = maintain.model_of(index, run)
    sources = find(images, label, by_folder)
    _add(
        lambda: Writer.open(index),
        lambda writer, progress: ingest(writer, model, sources, progress),
    )


@app.command()
def remove(
    index: IndexFolder,
    what: Annotated[list[str], typer.Argument(help="paths of pictures or folders, or ids")],
) -> None:
    """Example: unseen index remove birds.index photos/blurred.jpg 17

    Takes pictures out of the index; their files stay.
    """
    with Writer.open(index) as writer:
        removed = writer.remove(maintain.named(writer.index(), what))
        writer.refresh_store()
    console.print(f"removed {removed:,} pictures, {len(Index.open(index)):,} stay")


@app.command()
def update(
    index: IndexFolder,
    images: Annotated[
        list[str] | None, typer.Argument(help="also add what is new in these")
    ] = None,
    run: Run = None,
    remove_missing: RemoveMissing = False,
) -> None:
    """Example: unseen index update birds.index photos/

    Brings the index in line with the files: changed ones are embedded again under their old id,
    vanished ones are removed, and get their id again if they come back.
    """
    model = maintain.model_of(index, run)
    new = find(images) if images else []

    def work(writer: Writer, progress: Progress) -> Ingested:
        gone, done = maintain.update(writer, model, new, progress, remove_missing=remove_missing)
        console.print(f"{gone:,} files are gone and were removed")
        return done

    _add(lambda: Writer.open(index), work)


@app.command("verify")
def check(index: IndexFolder) -> None:
    """Example: unseen index verify birds.index

    Reads every byte and compares it with its checksum; exit code 1 when something is wrong.
    """
    with display() as (_, watch):
        problems = verify.verify(index, watch.of("reading"))
    for problem in problems:
        console.print(str(problem), style="red")
    if problems:
        console.print(
            f"`unseen index repair {shlex.quote(str(index))}` keeps what is whole and embeds the "
            "rest again",
        )
        raise typer.Exit(1)
    for _ in verify.leftovers(index)[:1]:
        console.print("a stopped writer left files behind; the next one removes them")
    console.print(f"{index}: {len(Index.open(index)):,} pictures, all as they were written")


@app.command()
def info(index: IndexFolder) -> None:
    """Example: unseen index info birds.index

    Prints what the index holds, its bytes and precision, and what share of the nearest its search
    finds.
    """
    known = describe(Index.open(index))
    counts = f"{known.pictures:,} pictures, {known.labels:,} labels, segments: {known.segments:,}"
    console.print(f"{index}: {counts}")
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(known.num_bytes.items()))
    console.print(f"bytes: {sum(known.num_bytes.values()):,} ({kinds})")
    console.print(f"vectors: {known.size} numbers in {known.precision}")
    if known.precision == "int8":
        console.print(
            f"similarities are within {known.largest_error:.2g} of those before rounding, "
            f"{known.mean_error:.2g} on average over the pictures"
        )
    console.print(f"search: {known.store}, {_found(known)}")


@app.command()
def rebuild(
    index: IndexFolder,
    run: Annotated[
        Path | None,
        typer.Option(help="the run to embed with", show_default="the one it was made with"),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="of a run's nested sizes", show_default="as before, or all"),
    ] = None,
    remove_missing: RemoveMissing = False,
) -> None:
    """Example: unseen index rebuild birds.index --run runs/birds-2

    Embeds all its pictures again from their files, for a new or changed model. The old index
    answers until the new one is whole. Stopped or killed, the same command goes on.
    """
    model = maintain.model_of(index, run)
    if size is not None:
        model = Trained.open(model.folder.path).at(size)
    with display() as (_, watch):
        done = maintain.rebuild(index, model, watch.of("embedding"), remove_missing=remove_missing)
    _told(done, index)


@app.command()
def repair(index: IndexFolder, run: Run = None, remove_missing: RemoveMissing = False) -> None:
    """Example: unseen index repair birds.index

    Mends what `unseen index verify` found: keeps what is whole, embeds the other pictures again
    from their files, and says what could not be saved. Stopped or killed, the same command goes on.
    """
    with display() as (_, watch):
        if not verify.verify(index, watch.of("reading")):
            console.print(f"{index}: nothing to repair")
            return
        done = mend.repair(index, run, watch.of("embedding"), remove_missing=remove_missing)
    for sentence in done.told:
        console.print(f"not saved: {sentence}", style="yellow")
    console.print(f"{done.kept:,} pictures were whole")
    _told(done.again, index)


app.command("export")(export_index)
app.command("import")(import_from)
app.command("upgrade")(upgrade_index)


def _found(known: Info) -> str:
    if known.recall is None:
        return "finds all of the nearest" if known.store == "exact" else "asked by every search"
    share = f"{100 * known.recall:.1f} % of the 10 nearest"
    if known.store == "exact":
        return (
            "finds all of the nearest by what is kept, about "
            f"{share} before rounding (estimated on {known.num_queries} pictures)"
        )
    return f"finds {share} of exact search, on {known.num_queries} pictures"


def _add(
    open_writer: Callable[[], AbstractContextManager[Writer]],
    work: Callable[[Writer, Progress], Ingested],
) -> None:
    with open_writer() as writer, display() as (_, watch):
        done = work(writer, watch.of("embedding"))
        writer.refresh_store(watch.of("indexing"))
        if not len(writer.index()):
            named = f"the first of {len(done.unreadable):,}: " if done.unreadable else ""
            raise ValueError(
                f"{writer.path} would be empty, no picture could be read; {named}"
                f"{done.unreadable[0] if done.unreadable else 'none was given'}"
            )
    _told(done, writer.path)


def _told(done: Ingested, path: Path) -> None:
    parts = [f"added {done.added:,}"]
    parts += [f"renewed {done.changed:,}"] if done.changed else []
    parts += [f"{done.same:,} were there"] if done.same else []
    parts += [f"{len(done.unreadable):,} cannot be read"] if done.unreadable else []
    console.print(f"{', '.join(parts)}; {path} holds {len(Index.open(path)):,} pictures")
    known = read(path)
    if known.approximate is not None:
        _tell_recall(
            f"faiss ({known.approximate.kind}: {known.approximate.why})", known.approximate
        )
    if known.outside is not None and known.outside.effort:
        _tell_recall("Milvus" if known.milvus else "LanceDB", known.outside)
    tell_left_out(done.unreadable)


def _tell_recall(who: str, store: ApproximateEntry | OutsideEntry) -> None:
    console.print(
        f"searched by {who}; finds {100 * store.recall:.1f} % of the 10 nearest of exact search, "
        f"on {store.num_queries} pictures",
    )
