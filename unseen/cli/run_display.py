"""A run on the terminal or in a notebook: what it is about, bars with time left, how to go on."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from unseen.cli.terminal import console, display, log_left_out
from unseen.core.contracts import FeatureDataset
from unseen.core.names import few
from unseen.data.base import INCOMPLETE, lost_line
from unseen.runs.leaks import Copies
from unseen.runs.prepare import Callbacks, RunContext, Show, sampler_of
from unseen.runs.run_items import describe
from unseen.training.distributed import Processes
from unseen.training.run_folder import RunFolder


class Shown(Show):
    """A run under bars with time left; of several processes the first one speaks."""

    @contextmanager
    def preparing(self, processes: Processes) -> Iterator[Callbacks]:
        console.quiet = not processes.is_first
        console.print("reading the data", style="dim")
        with display() as (_, callbacks):
            yield callbacks

    @contextmanager
    def training(self, context: RunContext, out: Path) -> Iterator[Callbacks]:
        print_data_notes(context)
        try:
            with display(context.config.training.epochs) as (shown, callbacks):
                shown.start_training(len(sampler_of(context)))
                yield callbacks
        except KeyboardInterrupt:
            if not RunFolder(out).file("weights.safetensors").exists():
                console.print("stopped in the first epoch; give the same command again")
            else:
                console.print(
                    "stopped; the same command goes on, "
                    f"`unseen evaluate run {shlex.quote(str(out))}` evaluates the best so far",
                )
            raise


def print_data_notes(context: RunContext) -> None:
    """What will be trained on, and why each automatic choice was made."""
    about = describe(context)
    data, split = about.data, about.split
    select = Text(f"{split.validation_classes:,}")
    if context.config.training.validation.select == "test":
        select = Text("the test classes", style="yellow")
    things = "items" if isinstance(context.dataset, FeatureDataset) else "images"
    console.print(
        Text.assemble(
            f"{data.name}: {data.items:,} {things} of {data.classes:,} classes "
            f"({few(map(str, context.dataset.label_names))}); train on "
            f"{split.train_classes:,}, select on ",
            select,
            f", test on {split.test_classes:,} unseen ones",
        ),
    )
    metadata = context.dataset.describe()
    if INCOMPLETE in metadata:
        console.print(Text(f"  {metadata[INCOMPLETE]}", style="yellow"))
    if lone := metadata.get("classes with one image"):
        named = ", ".join(metadata.get("lone classes", []))
        has = "class has" if lone == 1 else "classes have"
        console.print(f"  {lone} {has} one image ({named}): not trained on, not asked for")
    log_left_out(metadata.get("unreadable", []), metadata.get("unreadable files"))
    if lost := metadata.get("lost classes"):
        console.print(f"  {lost_line(lost)}", style="yellow")
    for note in metadata.get("notes", []):
        console.print(f"  {note}", style="yellow")
    if context.copies is not None:
        print_duplicates(context.copies)
    for reason in context.reasons:
        console.print(f"  {reason}", style="dim")


def print_duplicates(copies: Copies) -> None:
    """Copies on both sides of the split make a score look better than it is."""
    counts = copies.counts()
    if copies.across:
        one = copies.across == 1
        console.print(
            Text.assemble(
                (
                    f"  {copies.across} image{'' if one else 's'} of training classes "
                    f"{'has' if one else 'have'} a duplicate across the split, which inflates "
                    "scores: ",
                    "yellow",
                ),
                f"{copies.examples[0]}; all: `unseen data check`",
            ),
        )
    elif number := counts["duplicates"]:
        console.print(
            f"  {number} duplicates, none across the split; `unseen data check` names them"
        )
