"""`unseen study`: many runs, compared fairly, on one machine or several."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unseen import find_data
from unseen.cli.terminal import console, display
from unseen.contracts import Dataset
from unseen.experiment.run_context import Watch, reopen, stored_config
from unseen.reports import page
from unseen.studies import engine, kept, tables
from unseen.studies import plan as plans
from unseen.studies.engine import Study, StudyProgress
from unseen.studies.generalisation import run as generalisation
from unseen.studies.generalisation.plan import NAME
from unseen.studies.published import items
from unseen.studies.published import study as published_studies
from unseen.studies.published.study import Budget
from unseen.studies.queue import GRACE
from unseen.studies.report import write
from unseen.studies.results import Results, read
from unseen.training.run_folder import RunFolder

study = typer.Typer(
    help="Example: unseen study run losses.toml --out studies/losses\n\n"
    "Many runs, compared fairly.",
    no_args_is_help=True,
    add_completion=False,
)
Jobs = Annotated[
    int | None, typer.Option(help="worker processes", show_default="as many as cores", min=1)
]
Storage = Annotated[
    str | None, typer.Option(help="shared by several machines: postgresql://me@server/db")
]
Parts = Annotated[
    list[str] | None,
    typer.Option("--part", help="of the study, from outside, whose code may run here"),
]
Grace = Annotated[int, typer.Option(help="seconds of silence after which a worker is dead", min=4)]
Out = Annotated[Path, typer.Option(help="the study's folder")]


@study.command(short_help="Run a study file, or go on with it.")
def run(
    file: Annotated[Path, typer.Argument(help="a TOML file: what is compared, what is the same")],
    out: Out,
    jobs: Jobs = None,
    storage: Storage = None,
    retry: Annotated[bool, typer.Option(help="try failed runs once more")] = False,
    grace: Grace = GRACE,
) -> None:
    """Example: unseen study run losses.toml --out studies/losses

    Runs every combination of the file's factors with every seed, in one process per core; finished
    runs are never repeated, so the same command goes on after a stop. Ends with a table and a page.
    """
    made = Study(plans.load(file))
    with _shown(out) as tell:
        try:
            results = made.run(out, jobs=jobs, storage=storage, grace=grace, retry=retry, tell=tell)
        except KeyboardInterrupt:
            console.print("stopped; the same command goes on")
            raise
    console.print(tables.terminal(results))
    console.print(tables.judged_terminal(results))
    console.print(f"report: {write(results)}")


@study.command(short_help="Help with a study that another machine started.")
def work(
    name: Annotated[str, typer.Argument(help="the study's name, as in its file")],
    storage: Annotated[str, typer.Option(help="postgresql://user@host/database")],
    out: Out,
    part: Parts = None,
    jobs: Jobs = None,
    grace: Grace = GRACE,
) -> None:
    """Example: unseen study work losses --storage postgresql://server/db --out here

    Claims runs of the study until it is done, and takes over those of machines that died. Data must
    lie where the study file says. The small files of each run go to the storage as well.
    """
    with _shown(None) as tell:
        engine.work(name, storage, out, parts=part or (), jobs=jobs, grace=grace, tell=tell)


@study.command(short_help="Fetch the runs of other machines.")
def collect(
    name: Annotated[str, typer.Argument(help="the study's name, as in its file")],
    storage: Annotated[str, typer.Option(help="postgresql://user@host/database")],
    out: Out,
    part: Parts = None,
) -> None:
    """Example: unseen study collect losses --storage postgresql://server/db --out l

    Writes a run folder for each finished run that is not here yet: settings, scores, curves;
    weights and embeddings stay on the machine that made them.
    """
    number = engine.collect(name, storage, out, part or ())
    console.print(f"{number} runs fetched into {out}")
    console.print(tables.terminal(read(out)))


@study.command(short_help="Write the page of a study.")
def report(
    folder: Annotated[
        Path, typer.Argument(help="a folder made by `unseen study run`, or a kept study")
    ],
    pages: Annotated[bool, typer.Option(help="also write the page of every run")] = False,
) -> None:
    """Example: unseen study report studies/losses

    Writes report/index.html in the study's folder, with figures as PNG and PDF and the table as
    Markdown and LaTeX, from the run folders alone. A kept study (`evidence/rho.txz`, made by
    `unseen study keep`) is unpacked beside its file first.
    """
    if folder.is_file():
        folder = kept.unpack(folder)
    if published_studies.is_published(folder):
        _print_findings(published_studies.remake(folder))
        return
    if generalisation.is_generalisation(folder):
        _print_findings(generalisation.remake(folder))
        return
    results = read(folder)
    if pages:
        _write_pages(results)
    console.print(tables.terminal(results))
    console.print(tables.judged_terminal(results))
    console.print(f"report: {write(results)}")


@study.command(short_help="Keep the small files of a study in one file.")
def keep(
    folder: Annotated[Path, typer.Argument(help="a study, or a published one")],
    out: Annotated[Path, typer.Option(help="one small file, for a repository")],
) -> None:
    """Example: unseen study keep studies/losses --out evidence/losses.txz

    Keeps settings, scores and epochs of every run, so that `unseen study report FILE` makes tables
    and pages again anywhere. Weights, embeddings, pictures and paths of this machine are left out.
    """
    kinds = {published_studies.is_published: published_studies}
    kinds |= {generalisation.is_generalisation: generalisation}
    known = next((kind for is_it, kind in kinds.items() if is_it(folder)), kept)
    found = known.small_files_of(folder)
    kept.write(out, found)
    number = sum(name.endswith("/state.json") for name in found)
    console.print(f"{number} runs kept in {out}, {out.stat().st_size / 1000:,.0f} kB")


@study.command(short_help="Repeat a published study, its numbers beside ours.")
def published(
    name: Annotated[str, typer.Argument(help=f"one of {', '.join(published_studies.names())}")],
    settings: Annotated[
        list[str] | None, typer.Argument(help="key=value for every run, as for `unseen train`")
    ] = None,
    data: Annotated[
        str, typer.Option(help="as for `unseen train`", show_default="the study's own")
    ] = "",
    budget: Annotated[
        Budget, typer.Option(help="quick: minutes on two cores; full: as published")
    ] = "quick",
    seeds: Annotated[
        int, typer.Option(help="how many", show_default="as the study says", min=0)
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="the folder of published studies", show_default="published/..."),
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Example: unseen study published losses --data features.npz

    Runs the study, shows its tables and figures with the published values beside ours, and says
    what was found and what differs. Finished runs are never repeated; studies in the same folder
    share runs. `unseen study report FOLDER` writes the page again.
    """
    found = published_studies.find(name)
    ask = published_studies.Ask(data or found.usual_data, budget, tuple(settings or ()), seeds)
    folder = Path("presets") / f"{Path(ask.data).stem}-{budget}"  # where version 0.1 put them
    folder = out or (folder if folder.is_dir() else Path("published") / folder.name)
    try:
        page_file = published_studies.run(
            found, ask, folder, jobs, published_studies.Watch(_shown, _measuring)
        )
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on")
        raise
    _print_findings(page_file)


@study.command(short_help="How methods hold up as classes become stranger.")
def preset(
    name: Annotated[str, typer.Argument(help=NAME)],
    settings: Annotated[
        list[str] | None, typer.Argument(help="key=value for every run, as for `unseen train`")
    ] = None,
    data: Annotated[str, typer.Option(help="as for `unseen train`: photos/, features.npz")] = "",
    methods: Annotated[
        str, typer.Option(help="losses, with +regularizers: margin,multi_similarity+s2sd")
    ] = "",
    also: Annotated[
        list[str] | None, typer.Option(help="other data, before and after training; repeatable")
    ] = None,
    minutes: Annotated[int, typer.Option(help="choose steps, seeds and trials by them", min=0)] = 0,
    layers: Annotated[
        bool, typer.Option("--layers", help="train layers on pictures, not heads on frozen ones")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="the folder", show_default="studies/generalisation-...")
    ] = None,
    jobs: Jobs = None,
    budget: Annotated[Budget, typer.Option(hidden=True)] = "quick",
    seeds: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Example: unseen study preset generalisation --data photos/ --minutes 60

    Heads on frozen features, ten methods unless others are named: on steps of a ladder of shifts,
    each with its rate tuned, after a few shots, on an open set, and on other data. Ends in a page
    that says which three hold up best, or why that cannot be told. Finished runs are never
    repeated; `unseen study report OUT/generalisation` writes the page again. With --layers networks
    are trained on the pictures: small drawings whole, photographs as settings say (depth=last).
    """
    if name != NAME:  # published studies were called presets in version 0.1
        published(name, settings, data, budget, seeds, out, jobs)
        return
    if not data:
        raise ValueError("which data? --data photos/")
    words = tuple(word for word in methods.split(",") if word)
    given = (tuple(also or ()), minutes, tuple(settings or ()), layers)
    asked = generalisation.Asked(data, words, *given)
    folder = out or Path("studies") / f"{NAME}-{Path(data).stem}{'-layers' * layers}"
    try:
        page_file = generalisation.run(asked, folder, jobs, generalisation.Shown(_shown, _watched))
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on")
        raise
    _print_findings(page_file)


@study.command(short_help="List every table and figure of the sources.")
def sources(
    markdown: Annotated[
        bool, typer.Option(help="as in the documentation, with all columns")
    ] = False,
) -> None:
    """Example: unseen study sources

    Every table and figure of the five sources, the command that makes it again, and what of it is
    missing here. With --markdown also where the settings of each study differ from its source's.
    """
    if markdown:
        sys.stdout.write(items.markdown())
        return
    table = Table("source", "item", "study", "missing", title="tables and figures of the sources")
    for item in items.ITEMS:
        table.add_row(item.source, item.item, item.study or items.NONE, item.missing)
    console.print(table)


def _print_findings(page_file: Path) -> None:
    console.print((page_file.parent / "findings.md").read_text())
    console.print(f"page: {page_file}")


def _write_pages(results: Results) -> None:
    """The page of each finished run; their data are opened once."""
    data: dict[str, Dataset] = {}
    with display() as (_, watch):
        done = [run for run in results.runs if run.state == "done"]
        for place, each in enumerate(done):
            watch.progress("pages of runs", place, len(done))
            folder = RunFolder(each.folder)
            part = stored_config(folder).data
            name = part.model_dump_json()
            shown = data[name] = data.get(name) or find_data.open_data(part)
            if folder.has("weights.safetensors"):  # not of another machine, whose pictures stayed
                shown = reopen(each.folder, dataset=shown)[0].dataset
            page.write(each.folder, shown)
        watch.progress("pages of runs", len(done), len(done))


@contextmanager
def _watched() -> Iterator[Watch]:
    with display() as (_, watch):
        yield watch


@contextmanager
def _measuring() -> Iterator[published_studies.Told]:
    """A bar for what is computed after the runs."""
    with display() as (_, watch):
        yield watch.progress


@contextmanager
def _shown(out: Path | None) -> Iterator[Callable[[StudyProgress], None]]:
    """A line of progress with the time left, the failures, and the table as it grows."""
    if not console.is_terminal:
        yield _told_in_lines()
        return
    pace, last = _Pace(), -1
    content: list[object] = [Text("starting workers ...")]
    with Live(Group(), console=console, refresh_per_second=2, transient=True) as live:
        live.update(Group(*content))  # type: ignore[arg-type]

        def tell(now: StudyProgress) -> None:
            nonlocal last, content
            content[0] = Text(_line(now, pace))
            if now.ended != last:
                sentences = [
                    Text(f"failed: {title}: {error}", style="red")
                    for title, error in now.failed.items()
                ]
                table = [tables.terminal(read(out))] if out is not None and now.ended else []
                content = [content[0], *sentences, *table]
                last = now.ended
            live.update(Group(*content))  # type: ignore[arg-type]

        yield tell


def _told_in_lines() -> Callable[[StudyProgress], None]:
    """In a pipe or a file nothing is replaced: a line when a run begins, ends or fails."""
    console.print("starting workers ...")
    pace, said = _Pace(), list[StudyProgress]()

    def tell(now: StudyProgress) -> None:
        if now in said[-1:]:
            return
        failed = said[-1].failed if said else {}
        said.append(now)
        console.print(_line(now, pace))
        for title in now.failed.keys() - failed.keys():
            console.print(f"failed: {title}: {now.failed[title]}")

    return tell


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
