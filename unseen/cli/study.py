"""`unseen study`: many runs, compared fairly, on one machine or several."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from unseen.cli.options import OtherData, OutFolder, Settings, group
from unseen.cli.terminal import console, display
from unseen.config import find_data
from unseen.core.contracts import Dataset
from unseen.core.names import known
from unseen.reports import run_page
from unseen.reproductions import published_study as published_studies
from unseen.reproductions import source_items
from unseen.reproductions.full_budget import needs
from unseen.reproductions.request import Budget
from unseen.runs.prepare import Callbacks, reopen, stored_config
from unseen.studies import archive, engine, study_tables
from unseen.studies import study_file as plans
from unseen.studies.engine import Study, StudyProgress
from unseen.studies.generalization import plan_runs
from unseen.studies.generalization import run_study as generalization
from unseen.studies.generalization.plan_runs import NAME
from unseen.studies.results import Results, read
from unseen.studies.study_report import write
from unseen.training.run_folder import RunFolder

study = group(
    "Example: unseen study run losses.toml --out studies/losses\n\nMany runs, compared fairly."
)
Jobs = Annotated[
    int | None, typer.Option(help="worker processes", show_default="as many as cores", min=1)
]
Storage = typer.Option(help="shared by several machines: postgresql://me@server/db")
StudyOut = Annotated[
    Path | None, typer.Option("--out", help="the folder", show_default="named after the data")
]


@study.command(short_help="Run a study file, or go on with it.")
def run(
    file: Annotated[Path, typer.Argument(help="a TOML file: what is compared, what is the same")],
    out: OutFolder,
    jobs: Jobs = None,
    storage: Annotated[str | None, Storage] = None,
    retry: Annotated[bool, typer.Option(help="try failed runs once more")] = False,
) -> None:
    """Example: unseen study run losses.toml --out studies/losses

    Runs every combination of the file's factors with every seed, in one process per core; finished
    runs are never repeated, so the same command goes on after a stop. Ends with a table and a page.
    """
    made = Study(plans.load(file))
    with _going_on(), progress_of() as progress:
        results = made.run(out, jobs=jobs, storage=storage, retry=retry, progress=progress)
    console.print(study_tables.terminal(results))
    console.print(study_tables.evaluated_terminal(results))
    console.print(f"report: {write(results)}")


@study.command(short_help="Help with a study of another machine, or fetch its runs.")
def work(
    name: Annotated[str, typer.Argument(help="the study's name, as in its file")],
    storage: Annotated[str, Storage],
    out: OutFolder,
    component: Annotated[
        list[str] | None,
        typer.Option("--component", help="custom component of the study whose code may run here"),
    ] = None,
    jobs: Jobs = None,
    collect: Annotated[bool, typer.Option("--collect", help="only fetch finished runs")] = False,
) -> None:
    """Example: unseen study work losses --storage postgresql://server/db --out here

    Claims runs of the study until it is done, and takes over those of machines that died. Data must
    lie where the study file says. The small files of each run go to the storage as well;
    `--collect` writes a run folder for each finished run that is not here yet.
    """
    if collect:
        number = engine.collect(name, storage, out, component or ())
        console.print(f"{number} runs fetched into {out}")
        console.print(study_tables.terminal(read(out)))
        return
    with progress_of() as progress:
        engine.work(name, storage, out, components=component or (), jobs=jobs, progress=progress)


@study.command(short_help="Write the page of a study.")
def report(
    folder: Annotated[
        Path, typer.Argument(help="a folder made by `unseen study run`, or an archive of it")
    ],
    pages: Annotated[
        bool, typer.Option("--pages", help="also write the page of every run")
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--archive", help="write settings and scores to one file instead")
    ] = None,
) -> None:
    """Example: unseen study report studies/losses

    Writes report/index.html in the study's folder, with figures as PNG and PDF and the table as
    Markdown and LaTeX, from the run folders alone. `--archive evidence/losses.txz` writes settings,
    scores and epochs of every run to one small file, without weights, embeddings, images and paths
    of this machine; such a file is unpacked beside itself and reported like a folder.
    """
    if to is not None:
        _archive(folder, to)
        return
    if folder.is_file():
        folder = archive.unpack(folder)
    if published_studies.is_published(folder):
        _print_findings(published_studies.remake(folder))
        return
    if generalization.is_generalization(folder):
        _print_findings(generalization.remake(folder))
        return
    results = read(folder)
    if pages:
        _write_pages(results)
    console.print(study_tables.terminal(results))
    console.print(study_tables.evaluated_terminal(results))
    console.print(f"report: {write(results)}")


def _archive(folder: Path, file: Path) -> None:
    kinds = {published_studies.is_published: published_studies}
    kinds |= {generalization.is_generalization: generalization}
    kind = next((kind for is_it, kind in kinds.items() if is_it(folder)), archive)
    files = kind.small_files_of(folder)
    archive.write(file, files)
    number = sum(name.endswith("/state.json") for name in files)
    console.print(f"{number} runs kept in {file}, {file.stat().st_size / 1000:,.0f} kB")


@study.command(short_help="Repeat a published study, its numbers beside ours.")
def published(
    name: Annotated[
        str | None, typer.Argument(help=f"one of {', '.join(published_studies.names())}")
    ] = None,
    settings: Settings = None,
    data: Annotated[
        str, typer.Option(help="as for `unseen train`", show_default="the study's own")
    ] = "",
    budget: Annotated[
        Budget, typer.Option(help="quick: minutes on two cores; full: as published")
    ] = "quick",
    seeds: Annotated[
        int, typer.Option(help="how many", show_default="as the study says", min=0)
    ] = 0,
    tune: Annotated[
        bool, typer.Option("--tune", help="the rate of every method first, on validation classes")
    ] = False,
    out: StudyOut = None,
    jobs: Jobs = None,
) -> None:
    """Example: unseen study published losses --data features.npz

    Runs the study, shows its tables and figures with the published values beside ours, and says
    what was found and what differs. Finished runs are never repeated; studies in the same folder
    share runs. `unseen study report FOLDER` writes the page again. Without a name: every table and
    figure of the five sources, the study that repeats it, and what of it is missing here.
    """
    if name is None:
        _list_sources()
        return
    result = published_studies.find(name)
    ask = published_studies.Ask(
        data or result.usual_data, budget, tuple(settings or ()), seeds, tune=tune
    )
    folder = out or Path("published") / f"{Path(ask.data).stem}-{budget}"
    if ask.is_as_published:
        console.print(
            "\n".join(["needs, estimated (never executed on CUDA):", *needs(result, ask)])
        )
    with _going_on():
        page_file = published_studies.run(
            result, ask, folder, jobs, published_studies.Callbacks(progress_of, _measuring)
        )
    _print_findings(page_file)


@study.command(short_help="How methods hold up as the distribution shift grows.")
def preset(
    name: Annotated[str, typer.Argument(help=NAME)],
    settings: Settings = None,
    data: Annotated[str, typer.Option(help="as for `unseen train`: photos/, features.npz")] = "",
    methods: Annotated[
        str, typer.Option(help="losses, with +regularizers: margin,multi_similarity+s2sd")
    ] = "",
    also: OtherData = None,
    budget: Annotated[
        plan_runs.Budget, typer.Option(help="quick: 3 steps, 3 seeds; usual: 5, 3; full: 5, 5")
    ] = "usual",
    layers: Annotated[
        bool, typer.Option("--layers", help="train layers on images, not heads on frozen ones")
    ] = False,
    out: StudyOut = None,
    jobs: Jobs = None,
) -> None:
    """Example: unseen study preset generalization --data photos/ --budget quick

    Heads on frozen features, ten methods unless others are named: on steps of splits of growing
    shift, each with its rate tuned, after a few shots, on an open set, and on other data. Ends in a
    page that says which three hold up best, or why that is inconclusive. Finished runs are never
    repeated; `unseen study report OUT/generalization` writes the page again. With --layers networks
    are trained on the images: small drawings whole, photographs as settings say
    (depth=last_layers).
    """
    known(name, [NAME], "preset")
    if not data:
        raise ValueError("which data? --data photos/")
    words = tuple(word for word in methods.split(",") if word)
    shape = (tuple(also or ()), budget, tuple(settings or ()), layers)
    request = generalization.Request(data, words, *shape)
    folder = out or Path("studies") / f"{NAME}-{Path(data).stem}{'-layers' * layers}"
    with _going_on():
        page_file = generalization.run(
            request, folder, jobs, generalization.Shown(progress_of, _watched)
        )
    _print_findings(page_file)


def _list_sources() -> None:
    table = Table("source", "item", "study", "missing", title="tables and figures of the sources")
    for item in source_items.ITEMS:
        table.add_row(item.source, item.item, item.study or source_items.NONE, item.missing)
    console.print(table)


def _print_findings(page_file: Path) -> None:
    console.print((page_file.parent / "findings.md").read_text())
    console.print(f"page: {page_file}")


def _write_pages(results: Results) -> None:
    """The page of each finished run; their data are opened once."""
    data: dict[str, Dataset] = {}
    with display() as (_, callbacks):
        done = [run for run in results.runs if run.state == "done"]
        for place, each in enumerate(done):
            callbacks.progress("pages of runs", place, len(done))
            folder = RunFolder(each.folder)
            source = stored_config(folder).data
            name = source.model_dump_json()
            shown = data[name] = data.get(name) or find_data.open_data(source)
            if folder.has("weights.safetensors"):  # not of another machine, whose images stayed
                shown = reopen(each.folder, dataset=shown)[0].dataset
            run_page.write(each.folder, shown)
        callbacks.progress("pages of runs", len(done), len(done))


@contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on")
        raise


@contextmanager
def _watched() -> Iterator[Callbacks]:
    with display() as (_, callbacks):
        yield callbacks


@contextmanager
def _measuring() -> Iterator[published_studies.Message]:
    """A bar for what is computed after the runs."""
    with display() as (_, callbacks):
        yield callbacks.progress


@contextmanager
def progress_of(_folder: Path | None = None) -> Iterator[Callable[[StudyProgress], None]]:
    """A line with what runs and the time left, and one for each failure."""
    pace, shown, start = _Pace(), list[StudyProgress](), "starting workers ..."
    with console.status(start) as status:  # shows nothing in a pipe or a file
        if not console.is_terminal:
            console.print(start)

        def progress(now: StudyProgress) -> None:
            if now in shown[-1:]:
                return
            failed = shown[-1].failed if shown else {}
            shown.append(now)
            line = Text(_line(now, pace))
            status.update(line)
            if not console.is_terminal:
                console.print(line)
            for title in now.failed.keys() - failed.keys():
                console.print(f"failed: {title}: {now.failed[title]}", style="red")

        yield progress


class _Pace:
    """Seconds from one end of a run to the next, of the later half of those that ended: trials come
    first and are shorter."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, float]] = []  # how many, when

    def of(self, ended: int) -> float | None:
        if not self.ends or ended > self.ends[-1][0]:
            self.ends.append((ended, time.monotonic()))
        if len(self.ends) < 2:
            return None
        (first, began), (last, now) = self.ends[(len(self.ends) - 1) // 2], self.ends[-1]
        return (now - began) / (last - first)


def _line(now: StudyProgress, pace: _Pace) -> str:
    left, seconds = "", pace.of(now.ended)
    if seconds is not None and now.ended < now.total:
        left = f", {timedelta(seconds=round(seconds * (now.total - now.ended)))} left"
    running = f"; running: {' | '.join(now.running)}" if now.running else ""
    return f"{now.ended} of {now.total} runs{left}{running}"
