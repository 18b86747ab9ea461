"""`unseen calibrate`: what a similarity means on unseen classes."""

from pathlib import Path
from typing import Annotated

import typer

from unseen.cli.terminal import MovedData, console, display, stages
from unseen.evaluation.calibrate import Calibration
from unseen.experiment.calibration import NAME, calibrate_run
from unseen.experiment.run_context import reopen
from unseen.experiment.trained import Trained
from unseen.reports import page


def calibrate(
    run: Annotated[Path, typer.Argument(help="a folder made by `unseen train`")],
    fmr: Annotated[
        float, typer.Option(help="share of pairs of different classes that may be matched")
    ] = 1e-3,
    confidence: Annotated[float, typer.Option(help="of the bound")] = 0.95,
    data: MovedData = None,
) -> None:
    """Example: unseen calibrate runs/birds --fmr 1e-3

    Finds, on the validation classes, the similarity that so few wrong pairs reach, how sure that
    is for other new classes, and how probable "same class" is at each similarity. Search and the
    report use it from then on.
    """
    trained = Trained.open(run)
    with display() as (_, watch):
        context, _folder = reopen(run, watch, data)
        made = calibrate_run(context, trained, watch, fmr, confidence)
        if (run / "report").exists():
            page.write(run, context.dataset, stages(watch))
    for line in told(made):
        console.print(line)
    console.print(f"written: {run / NAME}")


def told(made: Calibration) -> list[str]:
    """The calibration in sentences."""
    return [
        f"threshold {made.threshold:.4f}: reached by {_share(made.measured_fmr)} of "
        f"{made.wrong_pairs:,} pairs of different classes ({made.classes} validation classes)",
        f"  on other new classes: at most {_share(made.bound)}, with {made.confidence:.0%} "
        f"confidence ({made.classes} classes are the sample: more of them narrow it)",
        f"  {_share(made.fnmr)} of the pairs of one class stay below it",
        f"  {_share(made.strangers)} of the pictures find some wrong picture above it among "
        f"{made.gallery:,}; in a larger index more of them do",
        f"probability of the same class: off by {100 * made.error:.1f} points on average, on "
        "classes it was not fitted to",
    ]


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"
