"""`unseen index upgrade`: another model for an index, which goes on answering."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from unseen.cli.options import IndexPath, MovedData
from unseen.cli.terminal import console, display, log_left_out
from unseen.runs.calibrate_run import read_calibration
from unseen.runs.prepare import reopen
from unseen.runs.trained_run import Trained
from unseen.search import upgrade
from unseen.search.index import Index
from unseen.search.maintain import model_of
from unseen.search.upgrade import Fitted


def upgrade_index(
    index: IndexPath,
    run: Annotated[Path, typer.Option(help="the run whose model takes over")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the table alone")] = False,
    force: Annotated[bool, typer.Option("--force", help="even where answers get worse")] = False,
    old: Annotated[
        Path | None, typer.Option(help="the run of the index, if it is no longer where it was")
    ] = None,
    data: MovedData = None,
) -> None:
    """Example: unseen index upgrade birds.index --run runs/birds-2

    Fits a map from the old model's vectors to the new one's on the new run's training images and
    prints what it costs; then the index answers with compatible vectors at once, while its images
    are embedded again from their files. Stopped or killed, the same command goes on. Where answers
    get worse, or lose their calibration, it stops before anything is written and asks for --force.
    """
    new, opened = Trained.open(run), Index.open(index)
    left = upgrade.num_compatible(opened)
    if opened.manifest.model.fingerprint != new.fingerprint:
        if left:
            raise ValueError(
                f"{left:,} vectors of {index} are still compatible: first `unseen index upgrade "
                f"{shlex.quote(str(index))} --run {shlex.quote(opened.manifest.model.run)}`"
            )
        before = model_of(index, old)
        lost = _lost_calibration(before, new)
        if lost and not (force or dry_run):
            raise ValueError(f"{lost}; --force upgrades without")
        with display() as (_, callbacks):
            fitted = upgrade.fit(reopen(run, callbacks, data)[0], before, new, callbacks)
        _print(fitted)
        worse = _worse(fitted)
        if worse and not (force or dry_run):
            raise ValueError(f"{worse}; --force upgrades all the same")
        for reason in filter(None, (lost, worse)):
            console.print(reason, style="yellow")
        if dry_run:
            return
        with display() as (_, callbacks):
            upgrade.serve_compatible(index, fitted.map, new, callbacks.of("mapping"))
        left = len(opened)
        console.print(f"{index} answers with {left:,} compatible vectors of {run}")
    elif dry_run or not left:
        console.print(f"{index} is of {run}; {left:,} of its vectors are compatible")
        return
    with display() as (_, callbacks):
        done = upgrade.embed_again(index, new, callbacks.of("embedding"))
    stay = upgrade.num_compatible(Index.open(index))
    console.print(f"embedded {done.changed:,} images; {stay:,} vectors stay compatible")
    log_left_out(done.unreadable)


def _print(fitted: Fitted) -> None:
    table = Table(box=None)
    for head in ("who asks -> who answers", "recall@1", "95 % interval", "mAP@R"):
        table.add_column(head, justify="left" if "->" in head else "right")
    for name, result in fitted.scores.items():
        if "half" in name and name != upgrade.answers_half(fitted.map):
            continue
        low, high = (f"{100 * end:.1f}" for end in (result.recall.low, result.recall.high))
        recall, mean = (f"{100 * value:.1f}" for value in (result.recall.value, result.map_at_r))
        table.add_row(name, recall, f"{low} to {high}", mean)
    console.print(table)
    console.print(
        f"on {fitted.classes} validation classes of the new run, which chose the map "
        f"{fitted.map.kind!r} by mAP@R, fitted on {fitted.pairs:,} training images"
    )


def _lost_calibration(before: Trained, new: Trained) -> str | None:
    """What to do where answers would lose their probabilities."""
    if read_calibration(before) is None or read_calibration(new) is not None:
        return None
    path = new.folder.path
    cure = f"`unseen calibrate {shlex.quote(str(path))}`"
    return f"{path} has no calibration, the old run has one: {cure}"


def _worse(fitted: Fitted) -> str | None:
    """Which answers find less than the old model's, and what to do."""
    old = fitted.scores["old -> old"]
    for name, who, cure in (
        ("new -> new", "the new model's vectors", "keep the old run"),
        (
            upgrade.answers_compatible(fitted.map),
            "compatible vectors",
            "`unseen index rebuild` lets the old ones answer until all are new",
        ),
    ):
        now = fitted.scores[name]
        if now.recall.value < old.recall.value or now.map_at_r < old.map_at_r:
            recall = f"recall@1 {100 * old.recall.value:.1f} % -> {100 * now.recall.value:.1f} %"
            mean = f"mAP@R {100 * old.map_at_r:.1f} % -> {100 * now.map_at_r:.1f} %"
            return f"{who} find less than the old model's ({recall}, {mean}): {cure}"
    return None
