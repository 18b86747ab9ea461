"""`unseen data`: look at pictures before training on them, and pack them."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from unseen import assemble, find_data, settle
from unseen import config as configs
from unseen.cli.noise import noise as list_suspects
from unseen.cli.shift import shift
from unseen.cli.terminal import console, display, tell_left_out
from unseen.cli.write_table import table as write_as_table
from unseen.config import Config
from unseen.data.base import INCOMPLETE
from unseen.data.pictures import transforms
from unseen.data.pictures.inspect import UNUSUAL, WRONG
from unseen.data.pictures.pack import Packing, write
from unseen.data.pictures.survey import Survey, write_list
from unseen.experiment.check import checked
from unseen.experiment.run_context import prepare
from unseen.files import shown
from unseen.find_data import data_table
from unseen.reports.contact_sheet import contact_sheet

FOUND = 1  # the exit code when something is wrong with the data
NAMED = 5  # files or groups named one by one
PHOTO = 224  # what photographs are shown for where no network is named

app = typer.Typer(
    help="Example: unseen data check photos/\n\n"
    "Look at pictures before training on them, and pack them into one fast file.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
app.command("table")(write_as_table)
app.command("shift")(shift)
app.command("noise")(list_suspects)

Data = Annotated[str, typer.Argument(help="a folder of class folders, a table, or a data set")]
Settings = Annotated[
    list[str] | None, typer.Argument(help="key=value, e.g. data.root=... backbone=resnet50")
]
Workers = Annotated[int, typer.Option(help="pictures read at the same time", min=1)]


@app.command()
def check(
    data: Data,
    settings: Settings = None,
    fix: Annotated[Path | None, typer.Option(help="write a clean list, a CSV to train on")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="everything, for scripts")] = False,
    workers: Workers = 2,
) -> None:
    """Example: unseen data check photos/ --fix photos.csv

    Reads every picture: which are broken or unusual, which are copies of each other, which copies
    lie on both sides of the split and inflate scores, how large the classes are. Pictures are never
    touched; `unseen train photos.csv` trains on the clean list. Exit code 1: something is wrong.
    """
    config = _config(data, settings)
    with display() as (_, watch):
        part = find_data.as_it_is(config.data)
        dataset = find_data.open_data(part, watch.of("reading the data"))
        split, why_not = None, ""
        try:
            split = prepare(config, watch, dataset, is_named=True).split
        except ValueError as error:
            why_not = str(error)
        found = checked(dataset, split, workers, watch.of("looking at pictures"))
    lacking = str(dataset.describe().get(INCOMPLETE, ""))
    if as_json:
        notes = {"no_split": why_not, "notes": dataset.describe().get("notes", [])}
        print(json.dumps(found.to_dict() | notes | {INCOMPLETE: lacking}, indent=2))
    else:
        _print(found)
        for note in dataset.describe().get("notes", []):
            console.print(f"* {note}")
        if lacking:
            console.print(f"* {lacking} To train on it all the same: data.incomplete=true")
        if why_not:
            console.print(f"* not looked at across the split: {why_not}")
    if fix is not None:
        has_split = split is not None and dataset.official_test_classes is not None
        kept = write_list(found, fix, with_split=has_split)
        if not as_json:
            console.print(
                f"{kept:,} of {len(found.findings):,} pictures: {fix}; "
                f"`unseen train {shlex.quote(str(fix))}` trains on them"
            )
    if found.has_errors or (lacking and not config.data.values.get(INCOMPLETE)):
        sys.exit(FOUND)


@app.command()
def show(
    data: Data,
    settings: Settings = None,
    transform: Annotated[str, typer.Option(help=", ".join(transforms.NAMES))] = "base",
    out: Annotated[Path, typer.Option(help="the picture that is written")] = Path("contact.png"),
    pictures: Annotated[int, typer.Option(help="rows of the sheet", min=1)] = 6,
    views: Annotated[int, typer.Option(help="training views per picture", min=1)] = 6,
) -> None:
    """Example: unseen data show photos/ --transform base

    Writes a contact sheet: some pictures, each as it is, as it is judged, and as training sees it.
    `backbone=resnet50` shows what that network gets.
    """
    words = [*(settings or []), f"transform={transforms.known(transform)}"]
    config = _config(data, words)
    with display() as (_, watch):
        dataset = find_data.open_data(config.data, watch.of("reading the data"), config.strict)
    config, _ = settle.settle(config, dataset)
    named = any(word.startswith(("backbone", "picture_size")) for word in words)
    if not named and config.picture_size == transforms.usual_size(transform, settle.SMALL_PICTURE):
        config = config.model_copy(update={"picture_size": transforms.usual_size(transform, PHOTO)})
    training, evaluation = assemble.picture_transforms(config, assemble.network(config))
    items = np.linspace(0, len(dataset) - 1, num=min(pictures, len(dataset)), dtype=int).tolist()
    contact_sheet(dataset, items, training, evaluation, views, config.seed).save(out, "PNG")
    console.print(f"{transform} at {config.picture_size} pixels: {out}")


@app.command()
def pack(
    data: Data,
    out: Annotated[Path, typer.Option(help="the file that is written, e.g. photos.pack")],
    settings: Settings = None,
    short_side: Annotated[int, typer.Option(help="pixels; larger pictures are reduced")] = 256,
    jpeg: Annotated[
        int | None, typer.Option(help="a quality (90): a smaller, slower copy; else raw pixels")
    ] = None,
    workers: Workers = 2,
) -> None:
    """Example: unseen data pack photos/ --short-side 256 --out photos.pack

    Writes all pictures, reduced, into one file that trains at a multiple of the rate of separate
    files: `unseen train photos.pack`. Stopped, the same command goes on.
    """
    config = _config(data, settings)
    with display() as (shown, watch):
        dataset = find_data.open_data(config.data, watch.of("reading the data"), config.strict)
        packing = Packing(dataset, short_side, jpeg)
        if not out.exists():
            sizes = {name: f"{size / 1e6:,.0f} MB" for name, size in packing.estimate().items()}
            shown.bars.console.print(
                f"about {sizes['raw']} as raw pixels, {sizes['jpeg']} as JPEG (--jpeg 90)"
            )
        done = write(packing, out, workers, watch.of("packing"))
    tell_left_out(done.left_out)
    console.print(f"{done.items:,} pictures in {done.num_bytes / 1e6:,.0f} MB: {done.path}")


def _config(data: str, settings: list[str] | None) -> Config:
    values: dict[str, Any] = {"data": data_table(data)}
    return configs.make(configs.override(values, settings or []))


def _print(found: Survey) -> None:
    """Problems, copies, classes, advice."""
    console.print(
        f"{len(found.findings):,} files, {len(found.usable):,} usable, "
        f"{len(found.class_sizes):,} classes"
    )
    for kinds, colour in ((WRONG, "red"), (UNUSUAL, "yellow")):
        for kind in kinds:
            files = found.with_problem(kind)
            if files:
                console.print(Text.assemble((kind, colour), f": {len(files)}"))
            for finding in files[: NAMED if colour == "red" else 1]:
                why = f" ({finding.reason})" if finding.reason else ""
                console.print(f"  {shown(finding.path)}{why}")
    for name, groups in (("exact copies", found.exact), ("near copies", found.near)):
        _print_copies(name, found, groups)
    table = Table("pictures in a class", "classes")
    for sizes, number in found.histogram():
        table.add_row(sizes, f"{number:,}")
    console.print(table)
    for line in found.advice():
        console.print(f"* {line}")


def _print_copies(name: str, found: Survey, groups: list[list[int]]) -> None:
    if not groups:
        return
    across, relabelled = found.across_parts(groups), found.across_classes(groups)
    count = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
    both = (f"{len(across)} on both sides of the split", "red")
    line = Text.assemble(
        (name, "yellow"),
        f": {count} of {sum(map(len, groups))} pictures; {len(relabelled)} under several labels, ",
        both if across else "none across the split",
    )
    console.print(line)
    worst = [*across, *(g for g in relabelled if g not in across)]
    for group in [*worst, *(g for g in groups if g not in worst)][:NAMED]:
        sentences = [
            f"{shown(found.findings[i].path)} [{found.parts[i] or 'not used'}]" for i in group[:3]
        ]
        more = ["..."] if len(group) > 3 else []
        console.print("  " + " = ".join(sentences + more))
