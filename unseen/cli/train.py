"""`unseen train`: from pictures to a network and an honest score."""

import itertools
import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from unseen import build
from unseen import config as configs
from unseen.cli.allocator import keep_freed_memory
from unseen.cli.terminal import command_line, console, display, stages, tell_left_out
from unseen.config import Config
from unseen.contracts import FeatureDataset
from unseen.data.pictures.stored import CACHE_VARIABLE
from unseen.experiment.items import changes_since
from unseen.experiment.leaks import Copies
from unseen.experiment.run import train_and_judge
from unseen.experiment.setting import (
    Setting,
    as_stored,
    changed_keys,
    describe,
    prepare,
    steps_per_epoch,
)
from unseen.files import InUseError
from unseen.reports import page, tables
from unseen.training.processes import joined
from unseen.training.run_folder import RunFolder


def train(
    data: Annotated[
        str,
        typer.Argument(
            help="`glyphs`, a folder of class folders, a .csv, an .npz, or a .toml recipe"
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help=f"key=value; the keys: {', '.join(Config.model_fields)}"),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="a TOML file of settings")] = None,
    out: Annotated[
        Path | None, typer.Option(help="where the run goes", show_default="runs/...")
    ] = None,
    strict: Annotated[bool, typer.Option(help="stop at an unreadable picture")] = False,
    weights: Annotated[
        str | None, typer.Option(help="imagenet, or a file of the backbone's weights")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="what runs share: frozen layers' activations", show_default="~/.cache/unseen"
        ),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option(help="a new run if the data of the last one have changed")
    ] = False,
) -> None:
    """Example: unseen train glyphs loss=margin epochs=5

    Trains on some classes, selects on others, and judges the result on classes it never saw.
    `unseen train path/to/pictures` does the same with your own: path/to/pictures/<class>/*.jpg, and
    `unseen train recipe.toml data.root=path/to/pictures` takes data and settings from a file. A
    table of paths and labels (pictures.csv), a file of features (features.npz) and the folders of
    known benchmarks (CUB-200-2011, Cars196, ...) are recognised.
    """
    values = configs.load(config) if config else {}
    if data.endswith(".toml"):
        values |= configs.load(Path(data))
    else:
        values["data"] = build.data_table(data, values.get("data"))
    values |= {"strict": True} if strict else {}
    values |= {"weights": weights} if weights else {}
    if cache is not None:
        os.environ[CACHE_VARIABLE] = str(cache)
    settled = configs.make(configs.override(values, settings or []))
    run(settled, out, accept_changes)


def run(config: Config, out: Path | None, accept_changes: bool = False) -> dict[str, Any]:
    """Trains into a folder and prints the scores; a finished folder is only shown again. Of
    several processes the first one speaks and writes."""
    keep_freed_memory()
    with joined(config.device) as processes, ExitStack() as held:
        console.quiet = not processes.is_first
        with display() as (_, watch):
            setting = prepare(config, watch, processes=processes)
        out = processes.agreed(lambda: claimed(setting, out, held, accept_changes))
        folder = RunFolder(out, processes)
        setting = as_stored(setting, folder)
        finished = folder.read_json("result.json") if is_done(folder) else None
        result = finished or watched(setting, out)
    if finished:
        console.print(f"{out} is finished; its scores:")
        console.print(tables.score_table(finished))
    elif processes.is_first:
        with display() as (_, watch):
            written = page.write(out, setting.dataset, stages(watch))
        console.print(tables.score_table(result))
        console.print(f"report: {written}", soft_wrap=True)
    return result


def claimed(
    setting: Setting, out: Path | None, held: ExitStack, accept_changes: bool = False
) -> Path:
    """The folder of a run, this process's alone as long as `held` lives; a finished one is only
    read. A run with other settings is not touched: without `out` the next name is tried. A run that
    began with other items is an error, or passed over."""
    changes = ""
    for path in names(setting.config, out):
        folder = RunFolder(path)
        changed = other_settings(folder, setting)
        if found := other_items(folder, setting, changed):
            changes = changes or found
            continue
        if not changed:
            if changes and not accept_changes and not folder.is_started:
                raise ValueError(f"{changes}. --accept-changes trains a new run on them")
            if is_done(folder):
                return path
            purpose = as_stored(setting, folder).config.hash()
            try:
                lock = held.enter_context(ExitStack())
                lock.enter_context(folder.lock(purpose))
            except InUseError as error:
                if path == out or (error.owner is not None and error.owner.purpose == purpose):
                    raise
                continue
            if not (changed := other_settings(folder, setting)):  # nobody was faster
                return path
            lock.close()
        if path == out:
            raise ValueError(
                f"{path} holds a run with other settings ({', '.join(changed)}): "
                "choose another --out"
            )
    raise AssertionError("names never end")


def is_done(folder: RunFolder) -> bool:
    """Finished, and whole: a damaged network is restored, as after a stop."""
    return folder.is_finished and folder.is_whole


def other_items(folder: RunFolder, setting: Setting, changed: list[str]) -> str:
    """What has become of the items of a stored run, if nothing else is different: what "auto" is
    settled to depends on the items."""
    asked = setting.asked or setting.config
    if not folder.is_started or any(getattr(asked, key) != "auto" for key in changed):
        return ""
    return changes_since(folder, setting.dataset)


def other_settings(folder: RunFolder, setting: Setting) -> list[str]:
    """Keys in which a stored run differs from one that would go on with it."""
    if not folder.is_started:
        return []
    return changed_keys(folder, as_stored(setting, folder).config)


def watched(setting: Setting, out: Path) -> dict[str, Any]:
    """Trains and judges under bars with time left."""
    announce(setting)
    assert isinstance(setting.config.epochs, int)
    with display(setting.config.epochs) as (shown, watch):
        shown.start_training(steps_per_epoch(setting))
        try:
            return train_and_judge(setting, out, command_line(), watch, lock=nullcontext())
        except KeyboardInterrupt:
            if not RunFolder(out).file("weights.safetensors").exists():
                console.print("stopped in the first epoch; give the same command again")
            else:
                console.print(
                    "stopped; the same command goes on, "
                    f"`unseen evaluate {shlex.quote(str(out))}` judges the best so far",
                    soft_wrap=True,
                )
            raise


def announce(setting: Setting) -> None:
    """What will be trained on, and why each automatic choice was made."""
    counts = describe(setting)
    data, split = counts["data"], counts["split"]
    select = Text(f"{split['validation_classes']:,}")
    if setting.config.select == "test":
        select = Text("the test classes", style="yellow")
    things = "items" if isinstance(setting.dataset, FeatureDataset) else "pictures"
    console.print(
        Text.assemble(
            f"{data['name']}: {data['items']:,} {things} of {data['classes']:,} classes; train on "
            f"{split['train_classes']:,}, select on ",
            select,
            f", test on {split['test_classes']:,} unseen ones",
        ),
        soft_wrap=True,
    )
    told = setting.dataset.describe()
    if lone := told.get("classes with one picture"):
        console.print(f"  {lone} classes have one picture: not trained on, not asked for")
    tell_left_out(told.get("unreadable", []), told.get("unreadable files"))
    if setting.copies is not None:
        announce_copies(setting.copies)
    for reason in setting.reasons:
        console.print(f"  {reason}", style="dim", soft_wrap=True)


def announce_copies(copies: Copies) -> None:
    """Copies on both sides of the split make a score look better than it is."""
    counts = copies.counts()
    if copies.across:
        console.print(
            Text.assemble(
                (
                    f"  {copies.across} pictures of training classes have an exact copy in another "
                    "part of the split, which inflates scores: ",
                    "yellow",
                ),
                "; ".join(copies.examples),
            ),
            soft_wrap=True,
        )
    elif number := counts["exact copies"]:
        console.print(
            f"  {number} exact copies, none across the split; `unseen data check` names them"
        )


def names(config: Config, out: Path | None) -> Iterator[Path]:
    """`out`, or a name by data, loss and seed; further ones have a number."""
    path = Path(str(config.data.values.get("root", config.data.name))).resolve()
    data = path.name if path.is_dir() else path.stem
    first = out or Path("runs") / f"{data}-{config.loss.name.replace(':', '_')}-seed{config.seed}"
    yield first
    for number in itertools.count(2):
        yield first.with_name(f"{first.name}-{number}")
