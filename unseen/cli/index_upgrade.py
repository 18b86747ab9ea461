"""`unseen index upgrade`: another model for an index, which goes on answering."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from unseen.cli.terminal import MovedData, console, display, tell_left_out
from unseen.experiment.run_context import reopen
from unseen.experiment.trained import Trained
from unseen.search import upgrade
from unseen.search.index import Index
from unseen.search.maintain import model_of
from unseen.search.upgrade import Fitted


def upgrade_index(
    index: Annotated[Path, typer.Argument(help="a folder made by `unseen index build`")],
    run: Annotated[Path, typer.Option(help="the run whose model takes over")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the table alone")] = False,
    old: Annotated[
        Path | None, typer.Option(help="the run of the index, if it is no longer where it was")
    ] = None,
    data: MovedData = None,
) -> None:
    """Example: unseen index upgrade birds.index --run runs/birds-2

    Fits a map from the old model's vectors to the new one's on the new run's training pictures and
    prints what it costs; then the index answers with mapped vectors at once, while its pictures are
    embedded again from their files. Stopped or killed, the same command goes on.
    """
    new, opened = Trained.open(run), Index.open(index)
    left = upgrade.num_mapped(opened)
    if opened.manifest.model.fingerprint != new.fingerprint:
        if left:
            raise ValueError(
                f"{left:,} vectors of {index} are still mapped: first `unseen index upgrade "
                f"{shlex.quote(str(index))} --run {shlex.quote(opened.manifest.model.run)}`"
            )
        before = model_of(index, old)
        with display() as (_, watch):
            fitted = upgrade.fit(reopen(run, watch, data)[0], before, new, watch)
        _print(fitted)
        if dry_run:
            return
        with display() as (_, watch):
            upgrade.serve_mapped(index, fitted.map, new, watch.of("mapping"))
        left = len(opened)
        console.print(f"{index} answers with {left:,} mapped vectors of {run}")
    elif dry_run or not left:
        console.print(f"{index} is of {run}; {left:,} of its vectors are mapped")
        return
    with display() as (_, watch):
        done = upgrade.embed_mapped(index, new, watch.of("embedding"))
    stay = upgrade.num_mapped(Index.open(index))
    console.print(f"embedded {done.changed:,} pictures; {stay:,} vectors stay mapped")
    tell_left_out(done.unreadable)


def _print(fitted: Fitted) -> None:
    table = Table(box=None)
    for head in ("who asks -> who answers", "recall@1", "95 % interval", "mAP@R"):
        table.add_column(head, justify="left" if "->" in head else "right")
    for name, found in fitted.scores.items():
        if "half" in name and name != upgrade.answers_half(fitted.map):
            continue
        low, high = (f"{100 * end:.1f}" for end in (found.recall.low, found.recall.high))
        recall, mean = (f"{100 * value:.1f}" for value in (found.recall.value, found.map_at_r))
        table.add_row(name, recall, f"{low} to {high}", mean)
    console.print(table)
    console.print(
        f"on {fitted.classes} validation classes of the new run, which chose the map "
        f"{fitted.map.kind!r} by mAP@R, fitted on {fitted.pairs:,} training pictures"
    )
    served = fitted.scores[upgrade.answers_mapped(fitted.map)].recall.value
    if served < fitted.scores["old -> old"].recall.value:
        console.print(
            "mapped vectors find less than the old model's own: `unseen index rebuild` lets the "
            "old ones answer until all are new",
            style="yellow",
        )
