"""A run on the terminal or in a notebook: what it is about, bars with time left, how to go on."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text

from unseen.cli.terminal import console, display, tell_left_out
from unseen.contracts import FeatureDataset
from unseen.data.base import INCOMPLETE, brief
from unseen.experiment.leaks import Copies
from unseen.experiment.run_context import RunContext, Watch, steps_per_epoch
from unseen.experiment.run_facts import describe
from unseen.training.processes import Processes
from unseen.training.run_folder import RunFolder


class Shown:
    """A run under bars with time left; of several processes the first one speaks."""

    @contextmanager
    def preparing(self, processes: Processes) -> Iterator[Watch]:
        console.quiet = not processes.is_first
        with display() as (_, watch):
            yield watch

    @contextmanager
    def training(self, context: RunContext, out: Path) -> Iterator[Watch]:
        announce(context)
        assert isinstance(context.config.epochs, int)
        try:
            with display(context.config.epochs) as (shown, watch):
                shown.start_training(steps_per_epoch(context))
                yield watch
        except KeyboardInterrupt:
            if not RunFolder(out).file("weights.safetensors").exists():
                console.print("stopped in the first epoch; give the same command again")
            else:
                console.print(
                    "stopped; the same command goes on, "
                    f"`unseen evaluate {shlex.quote(str(out))}` judges the best so far",
                )
            raise


def announce(context: RunContext) -> None:
    """What will be trained on, and why each automatic choice was made."""
    about = describe(context)
    data, split = about.data, about.split
    select = Text(f"{split.validation_classes:,}")
    if context.config.select == "test":
        select = Text("the test classes", style="yellow")
    things = "items" if isinstance(context.dataset, FeatureDataset) else "pictures"
    console.print(
        Text.assemble(
            f"{data.name}: {data.items:,} {things} of {data.classes:,} classes; train on "
            f"{split.train_classes:,}, select on ",
            select,
            f", test on {split.test_classes:,} unseen ones",
        ),
    )
    facts = context.dataset.describe()
    if INCOMPLETE in facts:
        console.print(Text(f"  {brief(facts[INCOMPLETE])}", style="yellow"))
    if lone := facts.get("classes with one picture"):
        named = ", ".join(facts.get("lone classes", []))
        has = "class has" if lone == 1 else "classes have"
        console.print(f"  {lone} {has} one picture ({named}): not trained on, not asked for")
    tell_left_out(facts.get("unreadable", []), facts.get("unreadable files"))
    for note in facts.get("notes", []):
        console.print(f"  {note}", style="yellow")
    if context.copies is not None:
        announce_copies(context.copies)
    for reason in context.reasons:
        console.print(f"  {reason}", style="dim")


def announce_copies(copies: Copies) -> None:
    """Copies on both sides of the split make a score look better than it is."""
    counts = copies.counts()
    if copies.across:
        one = copies.across == 1
        console.print(
            Text.assemble(
                (
                    f"  {copies.across} picture{'' if one else 's'} of training classes "
                    f"{'has' if one else 'have'} an exact copy across the split, which inflates "
                    "scores: ",
                    "yellow",
                ),
                f"{copies.examples[0]}; all: `unseen data check`",
            ),
        )
    elif number := counts["exact copies"]:
        console.print(
            f"  {number} exact copies, none across the split; `unseen data check` names them"
        )
