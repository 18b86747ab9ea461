"""`unseen data`: look at images before training on them, and pack them."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table
from rich.text import Text

from unseen.cli.allocator import keep_freed_memory
from unseen.cli.label_issues import noise as list_label_issues
from unseen.cli.options import (
    AsJson,
    Data,
    OutFile,
    RayCluster,
    RayWorkers,
    Settings,
    chosen_engine,
    group,
)
from unseen.cli.terminal import console, display, log_left_out
from unseen.config import build, find_data, resolve
from unseen.config import schema as configs
from unseen.config.find_data import data_table
from unseen.config.schema import Config
from unseen.core.contracts import Dataset
from unseen.core.files import shown
from unseen.core.names import few
from unseen.data.base import INCOMPLETE
from unseen.data.images import transforms
from unseen.data.images.dataset_check import Survey, write_list
from unseen.data.images.image_check import UNUSUAL, WRONG
from unseen.data.images.image_files import ImageFiles
from unseen.data.images.write_table import write_table
from unseen.data.packed import Packing, write
from unseen.models.backbone import OWN
from unseen.reports.contact_sheet import contact_sheet
from unseen.runs.check_data import checked
from unseen.runs.extract_features import make_shift_splits, write_features
from unseen.runs.prepare import Callbacks, prepare

RESULT = 1  # the exit code when something is wrong with the data
NAMED = 5  # files or groups named one by one
VIEWS = 6  # augmentations of an image on the contact sheet
READERS = 2  # images read at the same time, unless workers=N
PHOTO = 224  # what photographs are shown for where no network is named

app = group(
    "Example: unseen data check photos/\n\n"
    "Check images before training on them, pack them, compute their features."
)
app.command("noise")(list_label_issues)


@app.command()
def check(
    data: Data,
    settings: Settings = None,
    fix: Annotated[Path | None, typer.Option(help="write a clean list, a CSV to train on")] = None,
    as_json: AsJson = False,
) -> None:
    """Example: unseen data check photos/ --fix photos.csv

    Reads every image: which are broken or unusual, which are copies of each other, which copies
    lie on both sides of the split and inflate scores, how large the classes are. Images are never
    touched; `unseen train photos.csv` trains on the clean list. Exit code 1: something is wrong.
    """
    config = _config(data, settings)
    with display() as (_, callbacks):
        source = find_data.as_it_is(config.data)
        dataset = find_data.open_data(source, callbacks.of("reading the data"))
        split, why_not = None, ""
        try:
            split = prepare(config, callbacks, dataset, is_named=True).split
        except ValueError as error:
            why_not = str(error)
        result = checked(dataset, split, _readers(config), callbacks.of("looking at images"))
    lacking = str(dataset.describe().get(INCOMPLETE, ""))
    if as_json:
        notes = {"no_split": why_not, "notes": dataset.describe().get("notes", [])}
        print(json.dumps(result.to_dict() | notes | {INCOMPLETE: lacking}, indent=2))
    else:
        _print(result)
        for note in dataset.describe().get("notes", []):
            console.print(f"* {note}")
        if lacking:
            console.print(f"* {lacking} To train on it all the same: data.incomplete=true")
        if why_not:
            console.print(f"* not looked at across the split: {why_not}")
    if fix is not None:
        has_split = split is not None and dataset.official_test_classes is not None
        count = write_list(result, fix, with_split=has_split)
        if not as_json:
            console.print(
                f"{count:,} of {len(result.findings):,} images: {fix}; "
                f"`unseen train {shlex.quote(str(fix))}` trains on them"
            )
    if result.has_errors or (lacking and not config.data.values.get(INCOMPLETE)):
        sys.exit(RESULT)


@app.command()
def show(
    data: Data,
    settings: Settings = None,
    out: OutFile = Path("contact.png"),
    images: Annotated[int, typer.Option(help="rows of the sheet", min=1)] = 6,
) -> None:
    """Example: unseen data show photos/ transform=base

    Writes a contact sheet: some images, each as it is, as it is evaluated, and as training sees it.
    `backbone=resnet50` shows what that network gets.
    """
    words = ["transform=base", *(settings or [])]
    config = _config(data, words)
    transform = str(config.data.transform.name)
    with display() as (_, callbacks):
        dataset = _opened(config, callbacks)
    config, _ = resolve.resolve(config, dataset)
    named = any(word.startswith(("backbone", "image_size")) for word in words)
    if not named and config.data.image_size == transforms.usual_size(
        transform, resolve.SMALL_IMAGE
    ):
        config = config.with_values({"image_size": transforms.usual_size(transform, PHOTO)})
    training, evaluation = build.image_transforms(config, build.network(config))
    items = np.linspace(0, len(dataset) - 1, num=min(images, len(dataset)), dtype=int).tolist()
    contact_sheet(dataset, items, training, evaluation, VIEWS, config.training.seed).save(
        out, "PNG"
    )
    console.print(f"{transform} at {config.data.image_size} pixels: {out}")


@app.command()
def pack(
    data: Data,
    out: OutFile,
    settings: Settings = None,
    short_side: Annotated[int, typer.Option(help="pixels; larger images are reduced")] = 256,
    jpeg: Annotated[
        int | None, typer.Option(help="a quality (90): a smaller, slower copy; else raw pixels")
    ] = None,
) -> None:
    """Example: unseen data pack photos/ --short-side 256 --out photos.pack

    Writes all images, reduced, into one file that trains at a multiple of the rate of separate
    files: `unseen train photos.pack`. Stopped, the same command goes on.
    """
    config = _config(data, settings)
    with display() as (shown, callbacks):
        dataset = _opened(config, callbacks)
        packing = Packing(dataset, short_side, jpeg)
        if not out.exists():
            sizes = {name: f"{size / 1e6:,.0f} MB" for name, size in packing.estimate().items()}
            shown.bars.console.print(
                f"about {sizes['raw']} as raw pixels, {sizes['jpeg']} as JPEG (--jpeg 90)"
            )
        done = write(packing, out, _readers(config), callbacks.of("packing"))
    log_left_out(done.left_out)
    console.print(f"{done.items:,} images in {done.num_bytes / 1e6:,.0f} MB: {done.path}")


@app.command()
def features(
    data: Data,
    out: OutFile,
    settings: Settings = None,
    ray: RayCluster = None,
    workers: RayWorkers = None,
) -> None:
    """Example: unseen data features photos/ backbone=resnet50 --out photos.npz

    Then `unseen train photos.npz` trains a head on them, in seconds. The same command again goes on
    where it was stopped. Official splits, queries, groups and further labels go with the features.
    `--ray start` computes on the workers of a cluster.
    """
    if out.suffix.lower() != ".npz":
        raise ValueError(f"--out must end in .npz, got {out}")
    request = _config(data, settings, pooling=OWN)
    keep_freed_memory()
    with display() as (_, callbacks):
        dataset = _opened(request, callbacks)
        config, _ = resolve.resolve(request, dataset)
        torch.set_num_threads(config.training.machine.threads)
        who = chosen_engine(ray, workers, config.training.machine.device)
        size = write_features(config, dataset, out, callbacks.of("computing features"), who)
    for note in dataset.describe().get("notes", []):
        console.print(f"  {note}", style="yellow")
    console.print(
        f"{len(dataset):,} items of {len(dataset.label_names):,} classes "
        f"({few(map(str, dataset.label_names))}), {size:,} features of {config.model.backbone} "
        f"({'with' if config.model.weights else 'without'} pretrained weights): {out}. "
        f"Next: unseen train {shlex.quote(str(out))}",
    )


@app.command()
def table(
    data: Data,
    out: OutFile,
    settings: Settings = None,
) -> None:
    """Example: unseen data table photos/ --out photos.csv

    Writes path, label, split, queries, gallery and further labels of every image, in the format
    of OpenMetricLearning; `unseen train photos.csv` reads it. Classes are split as `train` does.
    """
    request = _config(data, settings)
    with display() as (_, callbacks):
        context = prepare(request, callbacks)
    dataset: object = context.dataset
    if not isinstance(dataset, ImageFiles):
        raise ValueError(f"{context.dataset.name} is no data set of image files")
    tested = context.dataset.labels[context.split.test]
    write_table(dataset, out, tested)
    then = f"unseen train {shlex.quote(str(out))}"
    console.print(f"{len(dataset):,} images: {out}. Next: {then}")


@app.command()
def shift(
    data: Data,
    out: OutFile,
    settings: Settings = None,
) -> None:
    """Example: unseen data shift photos.npz --out stages.csv

    Exchanges classes between the training and the test half by their mean features, then removes
    those between: nine splits, numbered by the Frechet distance of their training and test
    features. Images go through the backbone once, at its starting weights. `unseen train DATA
    protocol=shift shift.step=7 shift.table=stages.csv` trains on one of them.
    """
    if out.suffix.lower() != ".csv":
        raise ValueError(f"--out must end in .csv, got {out}")
    request = _config(data, settings)
    with display() as (_, callbacks):
        dataset = _opened(request, callbacks)
        stages = make_shift_splits(request, dataset, out, callbacks)
    table = Table("step", "distance", "training classes", "test classes", "made by")
    for each in stages.steps:
        sizes = (str(len(each.train)), str(len(each.test)))
        table.add_row(str(each.step), f"{each.distance:.4g}", *sizes, each.made_by)
    console.print(table)
    console.print(
        f"Frechet distances of {stages.of}: {out}. Next: unseen train {shlex.quote(data)} "
        f"protocol=shift shift.step=7 shift.table={shlex.quote(str(out))}"
    )


def _config(data: str, settings: list[str] | None, **values: Any) -> Config:
    return configs.make(configs.override({"data": data_table(data)} | values, settings or []))


def _opened(config: Config, callbacks: Callbacks) -> Dataset:
    return find_data.open_data(config.data, callbacks.of("reading the data"), config.data.strict)


def _readers(config: Config) -> int:
    return (
        config.training.machine.workers
        if isinstance(config.training.machine.workers, int) and config.training.machine.workers > 0
        else READERS
    )


def _print(result: Survey) -> None:
    """Problems, copies, classes, advice."""
    console.print(
        f"{len(result.findings):,} files, {len(result.usable):,} usable, "
        f"{len(result.class_sizes):,} classes ({few(result.class_sizes)})"
    )
    for kinds, color in ((WRONG, "red"), (UNUSUAL, "yellow")):
        for kind in kinds:
            files = result.with_problem(kind)
            if files:
                console.print(Text.assemble((kind, color), f": {len(files)}"))
            for finding in files[: NAMED if color == "red" else 1]:
                why = f" ({finding.reason})" if finding.reason else ""
                console.print(f"  {shown(finding.path)}{why}")
    for name, groups in (("duplicates", result.exact), ("near-duplicates", result.near)):
        _print_copies(name, result, groups)
    table = Table("images in a class", "classes")
    for sizes, number in result.histogram():
        table.add_row(sizes, f"{number:,}")
    console.print(table)
    for line in result.advice():
        console.print(f"* {line}")


def _print_copies(name: str, result: Survey, groups: list[list[int]]) -> None:
    if not groups:
        return
    across, relabelled = result.across_parts(groups), result.across_classes(groups)
    count = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
    both = (f"{len(across)} on both sides of the split", "red")
    line = Text.assemble(
        (name, "yellow"),
        f": {count} of {sum(map(len, groups))} images; {len(relabelled)} under several labels, ",
        both if across else "none across the split",
    )
    console.print(line)
    worst = [*across, *(g for g in relabelled if g not in across)]
    for copies in [*worst, *(g for g in groups if g not in worst)][:NAMED]:
        sentences = [
            f"{shown(result.findings[i].path)} [{result.parts[i] or 'not used'}]"
            for i in copies[:3]
        ]
        more = ["..."] if len(copies) > 3 else []
        console.print("  " + " = ".join(sentences + more))
